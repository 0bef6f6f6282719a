"""Records of files that need not fit into memory, as an input that workers share."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.features import FeatureSpec
from psflow.ps_runtime.data.arrays import Columns, read_only_rows
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.input_scan import faulty_rows, kept_of_part, kept_rows, located, source_of
from psflow.ps_runtime.data.non_finite import (
    ALL_FINITE,
    NonFinite,
    NonFiniteCells,
    NonFiniteColumn,
    RefusedCellsError,
    non_finite_cells,
)
from psflow.ps_runtime.data.scanned_input import ScannedInput
from psflow.ps_runtime.data.splittable import KnownInput, batching_faults
from psflow.ps_runtime.data.window_order import Window, WindowOrder, WindowRows
from psflow.ps_runtime.errors import CellError, InputError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.reader import RecordReader

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_BYTES = 32 * 2**20
"""Bytes of features of the records that are in memory together, and shuffled among each other."""
WINDOWS_KEPT = 2
"""A batch may span two windows."""

Batch = tuple[dict[str, NDArray[Any]], NDArray[Any] | None]


@dataclass(frozen=True, slots=True)
class Batching:
    """Batch size, number of epochs and order of records; see `SplittableInput`."""

    batch_size: int | None = None
    """None: one batch of all records."""
    num_epochs: int | None = 1
    shuffle_seed: int | None = None

    def __post_init__(self) -> None:
        size = 1 if self.batch_size is None else self.batch_size
        if faults := batching_faults(size, self.num_epochs, self.shuffle_seed):
            raise InputError(tuple(faults))

    def applied_to(self, dataset: Dataset) -> Dataset:
        """Return records in memory with the same batching."""
        size = dataset.num_records if self.batch_size is None else self.batch_size
        return dataset.in_batches(size, self.num_epochs, self.shuffle_seed)


class RecordDataset(KnownInput):
    """Records of scanned files, preprocessed when they are read.

    Notes
    -----
    Thread-safe: one thread at a time reads.
    """

    def __init__(self, scanned: ScannedInput, batching: Batching) -> None:
        self.scanned, self.batching = scanned, batching
        scan, preprocessing = scanned.scan, scanned.preprocessing
        self._index = scan.index
        self._preprocessing = preprocessing
        self._filled = preprocessing.filled_columns
        self._label = preprocessing.label
        self._drops = scanned.drops
        self._input_part = scanned.part
        self._labels, self._label_records = scan.labels, scan.label_records
        self._weight = preprocessing.weight
        names = [column.name for column in preprocessing.raw_columns]
        names += [column.name for column in (self._label.column if self._label else None, self._weight) if column]
        self._reader = RecordReader(scan.index, names, allows_invalid=scan.invalid.policy != "error")
        self._lock = threading.Lock()
        self._windows: OrderedDict[tuple[int, ...], Batch] = OrderedDict()
        specs = self._specs()
        row_bytes = sum(np.dtype(spec.dtype).itemsize * int(np.prod(spec.shape)) for spec in specs) or 1
        kept = np.flatnonzero(scan.kept_records)
        self._chunks = kept
        self._kept_records = scan.kept_records
        window_records = max(1, WINDOW_BYTES // row_bytes)
        self._order = WindowOrder(
            scan.kept_records[kept].tolist(), _runs(scan.index, kept), window_records, batching.shuffle_seed
        )
        self.batch_size = batching.batch_size or self._order.num_records
        self.num_epochs = batching.num_epochs
        self.shuffle_seed = batching.shuffle_seed
        self.unused = scanned.unused
        self.source = source_of(scan.index)
        self.non_finite = scan.non_finite
        self.invalid = scan.invalid
        self._window_records = min(self._order.num_records, window_records)

    def judged(self, non_finite: NonFinite, where: str, features: Sequence[str] = (), *, may_drop: bool = True) -> Self:
        """Return the input itself; RefusedCellsError if it has cells that are refused.

        `features` are columns that it need not read; `may_drop` says whether it may leave out rows.
        """
        refused = self.non_finite if non_finite == "error" and self.non_finite.num_rows else ALL_FINITE
        invalid = self.invalid.faults(where, features, may_drop=may_drop)
        if invalid or refused.columns:
            columns = {f"column {column.name!r}" for column in self.invalid.columns if invalid}
            columns.update(column.name for column in refused.columns)
            faults = (*invalid, *(refused.faults() if refused.columns else ()))
            raise RefusedCellsError(faults, self.schema(), frozenset(columns))
        return self

    @property
    def num_records(self) -> int:
        """Number of records, without those that are left out."""
        return self._order.num_records

    @property
    def window_records(self) -> int:
        """Records that are in memory together."""
        return self._window_records

    def read(self, epoch: int, start: int, stop: int) -> Batch:
        """Return records ``[start, stop)`` of the order of `epoch`; see `SplittableInput.read`."""
        if epoch < 0 or not 0 <= start < stop <= self.num_records:
            raise InputError(
                (
                    f"expected an epoch >= 0 and a range within the {self.num_records} records, "
                    f"got epoch {epoch}, records [{start}, {stop})",
                )
            )
        with self._lock:
            read = [self._part(part) for part in self._order.parts(epoch, start, stop)]
        return read[0] if len(read) == 1 else _joined(read)

    def place(self, epoch: int, position: int) -> str:
        """Return file and row of the record at `position` of the order of `epoch`."""
        (part,) = self._order.parts(epoch, position, position + 1)
        file, row = self._index.place(int(self._records(part.window)[part.rows][0]))
        return f"row {row} of {file} ({self.source.note})"

    def distinct_labels(self) -> Columns | None:
        """Return the classes, or the labels that are numbers."""
        if self._label is None:
            return None
        if self._label.classes is not None:
            return np.arange(len(self._label.classes))
        return self._labels.astype(self._label.dtype)

    def place_of_label(self, index: int, where: str) -> str:
        """Return the first row with that label, and its file; see `SplittableInput.place_of_label`."""
        file, row = self._index.place(int(self._label_records[index]))
        return f"row {row} of {file} ({self.source.note}), {where},"

    def first_non_finite_cell(self, epoch: int, start: int, stop: int) -> str:
        """Return column and row of such a cell; see `SplittableInput.first_non_finite_cell`."""
        names = {f"features[{spec.name!r}]": (spec.name,) for spec in self._specs() if not spec.shape}
        label = {} if self._label is None else {"labels": (self._label.column.name,)}
        cells, _ = non_finite_cells(*self.read(epoch, start, stop), {**names, **label})
        if not cells.columns:
            return ""
        parts = self._order.parts(epoch, start, stop)
        records = np.concatenate([self._records(part.window)[part.rows] for part in parts])
        columns = []
        for column in cells.columns:
            record = int(records[column.first_record])
            file, row = self._index.place(record)
            columns.append(NonFiniteColumn(column.name, column.num_cells, record, row, file))
        return NonFiniteCells(self.source, cells.num_rows, tuple(columns)).first

    def schema(self) -> InputSchema:
        """Return the schema of a record."""
        labels = () if self._label is None else (ArraySpec("", self._label.spec.dtype, ()),)
        name = None if self._label is None else self._label.column.name
        features = tuple(
            ArraySpec(
                spec.name,
                spec.dtype,
                spec.shape,
                spec.num_ids or 0,
                spec.embedding or 0,
                spec.lifetime,
                spec.combiner,
                spec.weights,
            )
            for spec in self._specs()
        )
        return InputSchema(features, labels, label=name, preprocessing=self._preprocessing, text=self.scanned.text)

    def order_facts(self) -> list[Any]:
        """Return the facts that determine order and batches; see `KnownInput.order_facts`."""
        return [self.batch_size, self.shuffle_seed]

    def digest(self) -> str:
        """Return 32 hexadecimal digits that identify the files and their state."""
        part = None if self._input_part is None else [self._input_part.start, self._input_part.stop]
        facts = [self._index.digest(), self._kept_records.tolist(), part, self._preprocessing.to_facts()]
        return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _specs(self) -> tuple[FeatureSpec, ...]:
        weight = () if self._weight is None else (FeatureSpec(self._weight.name, "float32", ()),)
        return (*self._preprocessing.specs, *weight)

    def _part(self, part: WindowRows) -> Batch:
        features, labels = self._window(part.window)
        rows = part.rows
        return (
            {name: read_only_rows(array, rows) for name, array in features.items()},
            None if labels is None else read_only_rows(labels, rows),
        )

    def _window(self, window: Window) -> Batch:
        """Return the features and labels of a window; the last windows are cached."""
        if window.chunks in self._windows:
            self._windows.move_to_end(window.chunks)
            return self._windows[window.chunks]
        while len(self._windows) >= WINDOWS_KEPT:
            self._windows.popitem(last=False)
        features: dict[str, NDArray[Any]] = {
            spec.name: np.empty((window.num_records, *spec.shape), spec.dtype) for spec in self._specs()
        }
        labels = None if self._label is None else np.empty(window.num_records, self._label.spec.dtype)
        start = 0
        for chunk in window.chunks:
            number = int(self._chunks[chunk])
            stop = start + int(self._kept_records[number])
            rows = {name: array[start:stop] for name, array in features.items()}
            read, read_labels = self._chunk(number, rows)
            for name, array in read.items():
                if array is not rows[name]:
                    rows[name][...] = array
            if labels is not None:
                labels[start:stop] = read_labels
            start = stop
        self._windows[window.chunks] = features, labels
        return features, labels

    def _chunk(
        self, number: int, out: Mapping[str, NDArray[Any]]
    ) -> tuple[dict[str, NDArray[Any]], NDArray[Any] | None]:
        """Return the features and labels of a chunk, some features in their arrays of `out`."""
        table, rows = self._table(number)
        try:
            features = self._preprocessing.apply(table, out)
            if self._weight is not None:
                features[self._weight.name] = self._preprocessing.weights(table)
            return features, None if self._label is None else self._preprocessing.labels(table)
        except CellError as error:
            row = error.row if rows is None else int(rows[error.row])
            raise located(error, self._index, int(self._index.first_records[number]) + row) from None
        except InputError as error:
            file = self._index.file_of(number).shown
            raise InputError(tuple(f"{file}: {fault}" for fault in error.faults)) from None

    def _table(self, number: int) -> tuple[pa.Table, NDArray[np.int64] | None]:
        """Return the kept records of a chunk, and their rows in it; None: all."""
        table = self._reader.read_chunk(number)
        if table.num_rows == self._kept_records[number]:
            return table, None
        first_record = int(self._index.first_records[number])
        of_part = None if self._input_part is None else self._input_part.has(first_record, table.num_rows)
        invalid = self._reader.invalid(number) if self.invalid.policy == "drop" else ()
        if invalid:
            of_part = kept_of_part(of_part, invalid, table.num_rows)
        rows = kept_rows(of_part, faulty_rows(table, self._filled, of_part) if self._drops else {})
        num_kept = table.num_rows if rows is None else len(rows)
        if rows is None or num_kept != self._kept_records[number]:
            what = f"chunk {number} has {num_kept} records, expected {self._kept_records[number]} as in its scan"
            raise InputError((f"{self._index.file_of(number).shown}: {what}; run the command again",))
        return table.take(rows), rows

    def _records(self, window: Window) -> NDArray[np.int64]:
        """Return the number of each record of a window in its files."""
        found = []
        for chunk in window.chunks:
            number = int(self._chunks[chunk])
            table, rows = self._table(number)
            found.append(self._index.first_records[number] + (np.arange(table.num_rows) if rows is None else rows))
        return np.concatenate(found)


def _runs(index: RecordIndex, chunks: NDArray[np.int64]) -> list[int]:
    """Return the indices of the chunks that start a run."""
    runs = np.cumsum(index.starts_run)[chunks]
    firsts: list[int] = np.flatnonzero(np.diff(runs, prepend=-1)).tolist()
    return firsts


def _joined(parts: list[Batch]) -> Batch:
    features, labels = parts[0]
    joined = {name: np.concatenate([part[0][name] for part in parts]) for name in features}
    return joined, None if labels is None else np.concatenate([part[1] for part in parts])
