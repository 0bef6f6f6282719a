"""The form of a safetensors file: eight bytes, a JSON header that says where each tensor lies, and the raw bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.entries import whole

__all__ = [
    "DTYPES",
    "LENGTH_BYTES",
    "TensorPlace",
    "decode_tensor_header",
    "encode_tensor_header",
    "header_nbytes",
    "plain_array",
]

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

LENGTH_BYTES = 8
"""A file begins with the length of its header, little-endian."""

_NAMES = {theirs: ours for ours, theirs in DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Bytes ``[start, stop)`` of a file are a tensor."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def plain_array(array: Any) -> NDArray[Any]:
    """Return `array` as a C-contiguous, native-endian array of at least 0 dimensions; itself where it is one."""
    array = np.asarray(array)
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.asarray(native, order="C")


def encode_tensor_header(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the beginning of a file that holds `tensors` in their order, its length included.

    Raises
    ------
    TypeError
        If safetensors has no type for the dtype of a tensor.
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
    """Return how many bytes the header takes, its length included; ValueError if the file has not as many."""
    nbytes = LENGTH_BYTES + int.from_bytes(beginning, "little")
    if nbytes > file_nbytes:
        raise ValueError(f"its header should have {nbytes} bytes, the file has {file_nbytes}")
    return nbytes


def decode_tensor_header(header: bytes, file_nbytes: int) -> dict[str, TensorPlace]:
    """Read what `encode_tensor_header` wrote; ValueError, TypeError or KeyError where it cannot be."""
    entries = json.loads(header[LENGTH_BYTES:])
    if not isinstance(entries, dict):
        raise ValueError(f"expected an object, got {entries!r}")
    return {key: _place(key, entry, len(header), file_nbytes) for key, entry in entries.items()}


def _place(key: str, entry: Any, start: int, file_nbytes: int) -> TensorPlace:
    dtype = _NAMES[entry["dtype"]]
    shape = tuple(whole(n, f"shape of {key}") for n in entry["shape"])
    begin, end = (start + whole(n, f"data_offsets of {key}") for n in entry["data_offsets"])
    if end > file_nbytes or end - begin != math.prod(shape) * np.dtype(dtype).itemsize:
        raise ValueError(f"{key} is said to lie in bytes [{begin}, {end}) of {file_nbytes}: {dtype}{list(shape)}")
    return TensorPlace(dtype, shape, begin, end)
