"""Shard files: safetensors, written as a stream with a running checksum, checked whole before they are read.

The library's own ``save_file`` neither tells a checksum nor writes to a store that is not local, and its ``save``
holds a second copy of everything; the format itself is a JSON header and raw bytes, so it is written here. Reading
is the library's.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from ps_runtime.checkpoint.file_store import FileStore
from ps_runtime.errors import CheckpointError

__all__ = ["DTYPES", "TensorFile", "checksum_of", "plain_array", "write_tensors"]

CHUNK_BYTES = 1 << 20
"""Small enough to be still in the processor's cache between checksum and write."""

DTYPES: Mapping[str, str] = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
"""numpy's names of the dtypes that safetensors can hold, and safetensors' own."""


def plain_array(array: Any) -> NDArray[Any]:
    """Return `array` as a C-contiguous, native-endian array of at least 0 dimensions; itself where it is one.

    safetensors silently writes wrong values for Fortran-ordered or strided arrays.
    """
    array = np.asarray(array)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.asarray(native, order="C")


def write_tensors(files: FileStore, name: str, tensors: Mapping[str, Any]) -> tuple[int, str]:
    """Write `tensors` to the safetensors file `name`; return its size in bytes and its checksum.

    Raises
    ------
    TypeError
        If safetensors has no type for the dtype of a tensor.
    """
    # The format wants tensors aligned: larger items first keeps them so without padding.
    plain = {key: plain_array(array) for key, array in tensors.items()}
    ordered = dict(sorted(plain.items(), key=lambda item: (-item[1].itemsize, item[0])))
    header = _header(ordered)
    nbytes = checksum = 0

    def counted() -> Iterator[memoryview]:
        nonlocal nbytes, checksum
        for chunk in itertools.chain([header], _raw_chunks(ordered.values())):
            nbytes += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
            yield chunk

    files.write(name, counted())
    return nbytes, _tell(checksum)


def checksum_of(path: str) -> str:
    """Return the checksum of the local file `path`, as `write_tensors` tells it."""
    checksum = 0
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
    return _tell(checksum)


class TensorFile:
    """An open shard file whose bytes have been found to be those that were written.

    Parameters
    ----------
    files : FileStore
    name : str
        The file.
    nbytes, checksum : int, str
        What `write_tensors` returned for it.

    Raises
    ------
    CheckpointError
        If the file is missing, or has other bytes.

    Notes
    -----
    The content is mapped into memory: it stays readable after the file is removed, and takes no memory by itself.
    A file of a store that is not local is copied to a temporary one, whose name is gone once it is mapped.
    """

    def __init__(self, files: FileStore, name: str, *, nbytes: int, checksum: str) -> None:
        self.path = files.path(name)
        size = files.size(name)
        if size != nbytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise CheckpointError(self.path, f"the file {found}, expected {nbytes} bytes; restore another checkpoint")
        with files.local_path(name) as path:
            found = checksum_of(path)
            if found != checksum:
                raise CheckpointError(
                    self.path, f"its bytes have changed: checksum {found}, expected {checksum}; use another checkpoint"
                )
            try:
                self._tensors: Any = safe_open(path, framework="numpy")
            except SafetensorError as error:
                raise CheckpointError(self.path, f"no safetensors file: {error}") from error

    def rows(self, key: str, start: int, stop: int) -> NDArray[Any]:
        """Return rows ``[start, stop)`` of the tensor `key`; a scalar has one row."""
        try:
            part = self._tensors.get_slice(key)
            shape = part.get_shape()
            if not shape:
                return np.asarray(self._tensors.get_tensor(key))
            # The library slices no empty range.
            array: NDArray[Any] = part[start:stop] if start < stop else self._tensors.get_tensor(key)[start:stop]
        except SafetensorError as error:
            raise CheckpointError(self.path, f"tensor {key!r} cannot be read: {error}") from error
        return array


def _tell(checksum: int) -> str:
    return f"crc32:{checksum:08x}"


def _header(tensors: Mapping[str, NDArray[Any]]) -> memoryview:
    entries: dict[str, Any] = {}
    end = 0
    for key, array in tensors.items():
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{key}: a checkpoint holds {', '.join(DTYPES)}; got {array.dtype.name}")
        start, end = end, end + array.nbytes
        entries[key] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return memoryview(len(text).to_bytes(8, "little") + text)


def _raw_chunks(arrays: Iterable[NDArray[Any]]) -> Iterator[memoryview]:
    for array in arrays:
        raw = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(raw), CHUNK_BYTES):
            yield raw[start : start + CHUNK_BYTES]
