"""Shard files: safetensors, streamed with a running checksum, verified completely on the first read.

The library's ``save_file`` neither returns a checksum nor writes to a remote store, and its ``save`` holds a second
copy of everything. Its reader only returns new arrays, whose pages cost more than their bytes, although a shard has its
memory already. This module therefore implements both directions of the library's format.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import whole
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import BLOCK_BYTES, FileReader
from psflow.ps_runtime.errors import CheckpointError

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
"""numpy's names of the dtypes that safetensors can hold, and those of safetensors."""

LENGTH_BYTES = 8
"""A file starts with the length of its header, little-endian."""

_NAMES = {theirs: ours for ours, theirs in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor in the bytes ``[start, stop)`` of a file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def plain_array(array: Any) -> NDArray[Any]:
    """Return `array` as a C-contiguous, native-endian array; unchanged if it is one."""
    array = np.asarray(array)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.asarray(native, order="C")


def encode_tensor_header(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the start of a file with `tensors` in this order, including its length.

    Raises TypeError if safetensors does not support the dtype of a tensor.
    """
    entries: dict[str, Any] = {}
    end = 0
    for key, array in tensors.items():
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{key}: a checkpoint holds {', '.join(DTYPES)}; got {array.dtype.name}")
        start, end = end, end + array.nbytes
        entries[key] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def header_nbytes(beginning: bytes, file_nbytes: int) -> int:
    """Return the size of the header in bytes, including its length; ValueError if the file is shorter."""
    nbytes = LENGTH_BYTES + int.from_bytes(beginning, "little")
    if nbytes > file_nbytes:
        raise ValueError(f"its header should have {nbytes} bytes, the file has {file_nbytes}")
    return nbytes


def decode_tensor_header(header: bytes, file_nbytes: int) -> dict[str, TensorPlace]:
    """Decode the result of `encode_tensor_header`; ValueError, TypeError or KeyError if it is invalid."""
    entries = json.loads(header[LENGTH_BYTES:])
    if not isinstance(entries, dict):
        raise ValueError(f"expected an object, got {entries!r}")
    return {key: _place(key, entry, len(header), file_nbytes) for key, entry in entries.items()}


def _place(key: str, entry: Any, start: int, file_nbytes: int) -> TensorPlace:
    dtype = _NAMES[entry["dtype"]]
    shape = tuple(whole(n, f"shape of {key}") for n in entry["shape"])
    begin, end = (start + whole(n, f"data_offsets of {key}") for n in entry["data_offsets"])
    if end > file_nbytes or end - begin != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError(f"{key} claims bytes [{begin}, {end}) of {file_nbytes}: {dtype}{list(shape)}")
    return TensorPlace(dtype, shape, begin, end)


REMEDY = "use another checkpoint, or remove this checkpoint's directory: training then resumes from the latest one left"

Wanted = tuple[int, NDArray[np.uint8]]
"""Bytes of a file: their start, and the array to fill."""


def write_tensors(files: FileStore, name: str, tensors: Mapping[str, Any]) -> tuple[int, str]:
    """Write `tensors` to the safetensors file `name`; return its size in bytes and its checksum.

    Raises TypeError if safetensors does not support the dtype of a tensor.
    """
    # The format requires aligned tensors: larger items first keeps them so without padding.
    plain = {key: plain_array(array) for key, array in tensors.items()}
    ordered = dict(sorted(plain.items(), key=lambda item: (-item[1].itemsize, item[0])))
    header = memoryview(encode_tensor_header(ordered))
    nbytes = checksum = 0

    def counted() -> Iterator[memoryview]:
        nonlocal nbytes, checksum
        for chunk in itertools.chain([header], _raw_chunks(ordered.values())):
            nbytes += len(chunk)
            checksum = zlib.crc32(chunk, checksum)
            yield chunk

    files.write(name, counted())
    return nbytes, _tell(checksum)


class TensorFile:
    """An open shard file.

    Raises CheckpointError if the file is missing, or has another size or content.

    Notes
    -----
    It stays readable after the file is removed. A file of a remote store is copied to an anonymous temporary file. Not
    thread-safe.
    """

    def __init__(self, files: FileStore, name: str, *, nbytes: int, checksum: str) -> None:
        self.path = files.path(name)
        self._nbytes = nbytes
        self._checksum = checksum
        self._is_proven = False
        size = files.size(name)
        if size != nbytes:
            found = f"is missing (expected {nbytes} bytes)" if size is None else f"has {size} bytes, expected {nbytes}"
            raise CheckpointError(self.path, f"the file {found}; {REMEDY}")
        with files.local_path(name) as path:
            self._reader = FileReader(path)
        self._tensors = self._read_header()

    def place(self, key: str) -> TensorPlace:
        """Return the position of the tensor `key`; CheckpointError if it does not exist."""
        place = self._tensors.get(key)
        if place is None:
            raise CheckpointError(self.path, f"there is no tensor {key!r}; {REMEDY}")
        return place

    def read(self, wanted: Iterable[Wanted]) -> None:
        """Fill arrays with bytes of the file, no byte twice. Blocks.

        The first call reads the whole file and verifies its checksum.

        Raises CheckpointError if the checksum differs; then the content of the arrays is undefined.
        """
        ordered = sorted((w for w in wanted if w[1].size), key=lambda w: w[0])
        assert all(a[0] + a[1].size <= b[0] for a, b in itertools.pairwise(ordered)), "a byte is wanted twice"
        if not self._is_proven:
            self._prove(ordered)
            return
        for start, target in ordered:
            _scatter(self._reader.blocks(start, start + target.size), [(start, target)])

    def chunks(self) -> Iterator[memoryview]:
        """Yield the whole file; each chunk is overwritten by the next.

        Raises CheckpointError after the last chunk if the checksum differs, or as soon as reading fails.
        """
        return (block.data for _, block in self._proven_blocks())

    def _prove(self, ordered: Sequence[Wanted]) -> None:
        _scatter(self._proven_blocks(), ordered)
        self._is_proven = True

    def _proven_blocks(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield the whole file; the checksum of a block is computed while the caller uses it, and the next is read."""
        with ThreadPoolExecutor(1, thread_name_prefix="psflow-checksum") as beside:
            counted = beside.submit(zlib.crc32, b"")
            try:
                for position, block in self._reader.blocks(0, self._nbytes):
                    counted = beside.submit(zlib.crc32, block.data, counted.result())
                    yield position, block
            except OSError as error:
                raise CheckpointError(self.path, f"it cannot be read: {error}; {REMEDY}") from error
            checksum = counted.result()
        if _tell(checksum) != self._checksum:
            raise CheckpointError(
                self.path,
                f"its bytes have changed: checksum {_tell(checksum)}, expected {self._checksum}; {REMEDY}",
            )

    def _read_header(self) -> dict[str, TensorPlace]:
        try:
            nbytes = header_nbytes(self._bytes(min(LENGTH_BYTES, self._nbytes)), self._nbytes)
            return decode_tensor_header(self._bytes(nbytes), self._nbytes)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            self._prove([])  # reports damage as such
            raise CheckpointError(self.path, f"not a safetensors file: {type(error).__name__}: {error}") from error

    def _bytes(self, nbytes: int) -> bytes:
        target = np.empty(nbytes, np.uint8)
        _scatter(self._reader.blocks(0, nbytes), [(0, target)])
        return target.tobytes()


def _scatter(blocks: Iterable[tuple[int, NDArray[np.uint8]]], ordered: Sequence[Wanted]) -> None:
    """Copy blocks of a file to the arrays that request their bytes. Consumes all blocks, including unused ones."""
    waiting = deque(ordered)
    for position, block in blocks:
        end = position + block.size
        while waiting and waiting[0][0] < end:
            start, target = waiting[0]
            begin, stop = max(start, position), min(start + target.size, end)
            np.copyto(target[begin - start : stop - start], block[begin - position : stop - position])
            if stop < start + target.size:
                break
            waiting.popleft()


def _tell(checksum: int) -> str:
    return f"crc32:{checksum:08x}"


def _raw_chunks(arrays: Iterable[NDArray[Any]]) -> Iterator[memoryview]:
    for array in arrays:
        raw = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(raw), BLOCK_BYTES):
            yield raw[start : start + BLOCK_BYTES]
