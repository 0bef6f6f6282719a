"""Reads images and their labels from IDX files, the form of MNIST."""

from __future__ import annotations

import gzip
import io
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.files import MAX_FILE_BYTES, one_batch, read_file
from psflow.ps_runtime.data.non_finite import RecordSource
from psflow.ps_runtime.data.scale import UNIT, ScaleRange, scaling_to
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.specs.schema import MATRIX

GZIP_MAGIC = b"\x1f\x8b"
UNSIGNED_BYTE = 0x08
MAX_PIXEL = 255
CHUNK_BYTES = 1 << 20
DEBIAN_DATASETS = PurePosixPath("/usr/share/datasets")
"""The directories of Debian's packages ``dataset-<name>``."""


@dataclass(frozen=True, kw_only=True)
class Idx(Format):
    """Images and their labels in IDX files, the form of MNIST."""

    suffixes: ClassVar[tuple[str, ...]] = ("-ubyte", "-ubyte.gz")

    path: Annotated[str | os.PathLike[str], Key("File or fsspec URL of the images.")]
    labels_path: Annotated[
        str | os.PathLike[str] | None, Key("File or fsspec URL of the labels; null: there are none.")
    ] = None
    scale: ScaleRange = UNIT

    def __post_init__(self) -> None:
        scaling_to(self.scale, MAX_PIXEL)

    def read(self) -> Dataset:
        """Return the images, which are scaled as they are read; see `read_idx`."""
        return _read_stored(self.path, self.labels_path, self.scale)

    @classmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return only the images, as they are stored; see `Format.for_prediction`."""
        return cls(path=location, scale=(0, MAX_PIXEL))


def read_idx(
    path: str | os.PathLike[str],
    labels_path: str | os.PathLike[str] | None = None,
    scale: Sequence[float] = UNIT,
) -> Dataset:
    """Read images and their labels from two IDX files of unsigned bytes.

    Raises
    ------
    InputError
        If a file cannot be read, is not such a file, is longer or shorter than its header says, the numbers of images
        and labels differ, or `scale` is not a range. A wrong size in a header causes no allocation.

    References
    ----------
    Y. LeCun, C. Cortes, C. Burges: The MNIST Database of Handwritten Digits, "File formats".
    """
    return _read_stored(path, labels_path, scale).scaled()


def _read_stored(
    path: str | os.PathLike[str], labels_path: str | os.PathLike[str] | None, scale: Sequence[float]
) -> Dataset:
    scaling = scaling_to(scale, MAX_PIXEL)
    images = _read_array(path, min_dims=2)
    pixels = images.reshape(len(images), -1)
    columns = tuple("_".join(["pixel", *map(str, place)]) for place in np.ndindex(images.shape[1:]))
    labels = None if labels_path is None else _read_labels(labels_path, len(images), path)
    source = RecordSource(shown_path(path))
    return one_batch(source, {MATRIX: pixels}, labels, columns=columns, scaling=scaling, is_stored=True)


def _read_labels(
    path: str | os.PathLike[str], num_images: int, images_path: str | os.PathLike[str]
) -> NDArray[np.int64]:
    labels = _read_array(path, min_dims=1)
    if labels.shape != (num_images,):
        raise InputError(
            (
                f"{shown_path(path)}: expected {num_images} labels, one for each image of {shown_path(images_path)}, "
                f"got an array {list(labels.shape)}",
            )
        )
    return labels.astype(np.int64)


def _read_array(path: str | os.PathLike[str], min_dims: int) -> NDArray[np.uint8]:
    _check_package(path)
    content = read_file(path)
    file: io.BufferedIOBase = io.BytesIO(content)
    if content.startswith(GZIP_MAGIC):
        file = gzip.GzipFile(fileobj=file)
    try:
        shape = _read_header(file, min_dims)
        return _read_body(file, shape)
    except InputError as error:
        raise InputError(tuple(f"{shown_path(path)}: {fault}" for fault in error.faults)) from None
    except (EOFError, OSError, zlib.error) as error:
        raise InputError((f"{shown_path(path)}: the gzip data is damaged: {error}",)) from None


def _check_package(path: str | os.PathLike[str]) -> None:
    """Refuse a file that is missing because its Debian package is; name the package to install."""
    place = PurePosixPath(os.fspath(path))
    if not place.is_relative_to(DEBIAN_DATASETS):
        return
    name, *below = place.relative_to(DEBIAN_DATASETS).parts or ("",)
    if below and not Path(DEBIAN_DATASETS, name).exists():
        package = f"dataset-{name}"
        raise InputError((f"there is no file {place}; install Debian's package {package}: apt install {package}",))


def _read_header(file: io.BufferedIOBase, min_dims: int) -> tuple[int, ...]:
    """Return the dimensions, all at least 1, and leave the file at the first byte of the array."""
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != bytes(2):
        raise InputError((f"is not an IDX file: expected it to begin with two bytes 0, got {magic.hex(' ')}",))
    kind, num_dims = magic[2:]
    if kind != UNSIGNED_BYTE:
        raise InputError((f"byte 2 says type {kind:#04x}: expected {UNSIGNED_BYTE:#04x}, unsigned bytes",))
    if num_dims < min_dims:
        raise InputError((f"byte 3 says {num_dims} dimensions: expected {min_dims} or more",))
    sizes = file.read(4 * num_dims)
    if len(sizes) < 4 * num_dims:
        raise InputError((f"ends in its header: expected {4 + 4 * num_dims} bytes, got {4 + len(sizes)}",))
    shape = tuple(np.frombuffer(sizes, ">u4").tolist())
    if 0 in shape:
        raise InputError((f"byte {4 + 4 * shape.index(0)} says a size of 0: expected 1 or more in {list(shape)}",))
    return shape


def _read_body(file: io.BufferedIOBase, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    num_bytes = math.prod(shape)
    start = 4 + 4 * len(shape)
    if num_bytes > MAX_FILE_BYTES:
        raise InputError((f"claims {list(shape)}: at most {MAX_FILE_BYTES} bytes are read into memory",))
    body = b"".join(_chunks(file, num_bytes + 1))
    if len(body) != num_bytes:
        held = f"{len(body)} bytes" if len(body) < num_bytes else "more"
        raise InputError((f"claims {list(shape)}, {num_bytes} bytes from byte {start} on, but holds {held}",))
    return np.frombuffer(body, np.uint8).reshape(shape)


def _chunks(file: io.BufferedIOBase, num_bytes: int) -> Iterator[bytes]:
    """Yield at most `num_bytes`: a decompressor allocates the requested number at once."""
    while num_bytes and (chunk := file.read(min(num_bytes, CHUNK_BYTES))):
        yield chunk
        num_bytes -= len(chunk)
