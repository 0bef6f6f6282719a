"""Files of each form that psflow reads, and for each the bare loop that reads them with its library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv
from pyarrow import parquet as pq
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from psflow import Csv, Format, LibSvm, ParquetInput
from psflow.ps_runtime.data.idx_images import Idx
from psflow.ps_runtime.data.npz_arrays import Npz

__all__ = ["BATCH_ROWS", "FORMS", "Form"]

BATCH_ROWS = 256
NUM_COLUMNS = 20
IMAGE = (4, 5)
MAX_PIXEL = 255
LABEL = "label"

Batch = tuple[NDArray[np.float32], NDArray[Any]]


class Form(ABC):
    """Data of one form: a matrix of `NUM_COLUMNS` columns, and a label in each row."""

    name: ClassVar[str]
    num_rows: ClassVar[int]
    """Number of rows, unless the benchmark is quick."""
    is_scanned: ClassVar[bool] = True
    """Whether psflow scans the file first and then reads its epochs; else it reads the whole file once."""

    @abstractmethod
    def write(self, path: Path, matrix: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write a file."""

    @abstractmethod
    def described(self, path: Path) -> Format:
        """Return the file as psflow reads it."""

    @abstractmethod
    def bare(self, path: Path) -> Iterator[Batch]:
        """Yield its batches, read with the library of the form and numpy."""


class CsvForm(Form):
    """CSV, by pyarrow."""

    name = "csv"
    num_rows = 1_000_000

    def write(self, path: Path, matrix: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write a file."""
        arrow_csv.write_csv(_table(matrix, labels), path)

    def described(self, path: Path) -> Format:
        """Return the file as psflow reads it."""
        return Csv(str(path), label=LABEL, groups={"features": "numeric"})

    def bare(self, path: Path) -> Iterator[Batch]:
        """Yield its batches: pyarrow streams the file in blocks of 4 MiB, in one thread."""
        options = arrow_csv.ReadOptions(use_threads=False, block_size=4 * 2**20)
        with arrow_csv.open_csv(path, options) as reader:
            for block in reader:
                yield from _batches(*_arrays(block))


class ParquetForm(Form):
    """Parquet, by pyarrow."""

    name = "parquet"
    num_rows = 1_000_000

    def write(self, path: Path, matrix: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write a file."""
        pq.write_table(_table(matrix, labels), path, row_group_size=100_000)

    def described(self, path: Path) -> Format:
        """Return the file as psflow reads it."""
        return ParquetInput(str(path), label=LABEL, groups={"features": "numeric"})

    def bare(self, path: Path) -> Iterator[Batch]:
        """Yield its batches: pyarrow reads so many rows at a time, in one thread."""
        with pq.ParquetFile(path) as file:
            for block in file.iter_batches(2**16, use_threads=False):
                yield from _batches(*_arrays(block))


class LibSvmForm(Form):
    """libsvm, by scikit-learn."""

    name = "libsvm"
    num_rows = 200_000

    def write(self, path: Path, matrix: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write a file in which every second value is left out, as 0."""
        sparse = np.where(np.arange(matrix.size).reshape(matrix.shape) % 2, matrix, np.float32(0))
        dump_svmlight_file(sparse, labels, str(path), zero_based=False)

    def described(self, path: Path) -> Format:
        """Return the file as psflow reads it."""
        return LibSvm(str(path), num_features=NUM_COLUMNS)

    def bare(self, path: Path) -> Iterator[Batch]:
        """Yield its batches: scikit-learn reads the whole file."""
        matrix, labels = load_svmlight_file(str(path), n_features=NUM_COLUMNS, dtype=np.float32, zero_based=False)
        yield from _batches(matrix.toarray(), labels)


class NpzForm(Form):
    """An archive of numpy."""

    name = "npz"
    num_rows = 1_000_000
    is_scanned = False

    def write(self, path: Path, matrix: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write a file."""
        with path.open("wb") as file:
            np.savez(file, features=matrix, labels=labels)

    def described(self, path: Path) -> Format:
        """Return the file as psflow reads it."""
        return Npz(path=path)

    def bare(self, path: Path) -> Iterator[Batch]:
        """Yield its batches: numpy reads the whole file."""
        with np.load(path) as stored:
            yield from _batches(stored["features"], stored["labels"])


class IdxForm(Form):
    """IDX files of unsigned bytes."""

    name = "idx"
    num_rows = 1_000_000
    is_scanned = False

    def write(self, path: Path, matrix: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Write two files."""
        pixels = np.clip(np.abs(matrix) * MAX_PIXEL, 0, MAX_PIXEL).astype(np.uint8)
        for file, array in ((path, pixels.reshape(-1, *IMAGE)), (_labels_of(path), labels.astype(np.uint8))):
            file.write_bytes(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes())

    def described(self, path: Path) -> Format:
        """Return the files as psflow reads them."""
        return Idx(path=path, labels_path=_labels_of(path))

    def bare(self, path: Path) -> Iterator[Batch]:
        """Yield the batches: numpy sees the bytes of both files as arrays."""
        pixels = np.frombuffer(path.read_bytes(), np.uint8, offset=4 + 4 * 3).reshape(-1, NUM_COLUMNS)
        labels = np.frombuffer(_labels_of(path).read_bytes(), np.uint8, offset=4 + 4)
        yield from _batches(pixels.astype(np.float32) / np.float32(MAX_PIXEL), labels.astype(np.int64))


FORMS: tuple[Form, ...] = (CsvForm(), ParquetForm(), LibSvmForm(), NpzForm(), IdxForm())


def _labels_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-labels")


def _table(matrix: NDArray[np.float32], labels: NDArray[np.int64]) -> pa.Table:
    columns = {f"column_{number}": matrix[:, number] for number in range(NUM_COLUMNS)}
    return pa.table({**columns, LABEL: labels})


def _arrays(block: pa.RecordBatch) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return the matrix and the labels of some rows."""
    matrix = np.empty((block.num_rows, NUM_COLUMNS), np.float32)
    for number in range(NUM_COLUMNS):
        matrix[:, number] = block.column(number).to_numpy()
    return matrix, block.column(NUM_COLUMNS).to_numpy()


def _batches(matrix: NDArray[np.float32], labels: NDArray[Any]) -> Iterator[Batch]:
    for start in range(0, len(matrix), BATCH_ROWS):
        yield matrix[start : start + BATCH_ROWS], labels[start : start + BATCH_ROWS]
