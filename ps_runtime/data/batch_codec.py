"""A batch on the wire: a small JSON header and raw bytes. Nothing is ever unpickled.

::

    uint32, little-endian: length of the header in bytes
    header: {"features": F, "labels": F or null}, F = [dtype, shape] or {name: [dtype, shape], ...}
    for each array, features first: zeros up to a multiple of 64 bytes, then the array's bytes
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np

from psflow.ps_runtime.data.arrays import Array, Columns, as_bytes, is_plain, named_arrays, plain_arrays
from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.specs.layout import ALIGNMENT_BYTES

LENGTH = struct.Struct("<I")
MAX_HEADER_BYTES = 1024 * 1024
MAX_DTYPE_CHARS = 16
MAX_NUM_AXES = 32
MAX_NAME_CHARS = 40
"""Characters of a dtype name in an error message."""


def encode_batch(features: object, labels: object) -> bytes:
    """Return the bytes of a batch.

    Raises InputError if they are not a batch, or have an object dtype.
    """
    plain_features, plain_labels = plain_arrays(features, labels)
    described = {
        "features": _describe(plain_features),
        "labels": None if plain_labels is None else _describe(plain_labels),
    }
    header = json.dumps(described, separators=(",", ":")).encode()
    parts: list[Any] = [LENGTH.pack(len(header)), header]
    end = LENGTH.size + len(header)
    for _, array in named_arrays(plain_features, plain_labels):
        parts += [bytes(-end % ALIGNMENT_BYTES), as_bytes(array)]
        end += -end % ALIGNMENT_BYTES + array.nbytes
    return b"".join(parts)


def decode_batch(buffer: bytes | bytearray | memoryview) -> tuple[Columns, Columns | None]:
    """Return the batch written by `encode_batch`: read-only views of `buffer`, no copies.

    Raises ProtocolError if the bytes are anything else. Nothing is allocated before its bounds are checked.
    """
    view = memoryview(buffer).cast("B")
    header, end = _header(view)
    reader = _ColumnsReader(view, end)
    features = reader.columns("features", header["features"])
    labels = None if header["labels"] is None else reader.columns("labels", header["labels"])
    if reader.end != len(view):
        raise _broken(f"expected {reader.end} bytes, got {len(view)}")
    if len({len(array) for _, array in named_arrays(features, labels)}) != 1:
        raise _broken("the arrays have different numbers of rows")
    return features, labels


def _describe(columns: Columns) -> Any:
    if isinstance(columns, dict):
        return {name: _describe(array) for name, array in columns.items()}
    return [columns.dtype.str, list(columns.shape)]


def _header(view: memoryview) -> tuple[dict[str, Any], int]:
    if len(view) < LENGTH.size:
        raise _broken(f"expected at least {LENGTH.size} bytes, got {len(view)}")
    (length,) = LENGTH.unpack_from(view)
    end = LENGTH.size + length
    if length > MAX_HEADER_BYTES or end > len(view):
        raise _broken(f"its header claims {length} bytes of {len(view)}, at most {MAX_HEADER_BYTES} are allowed")
    try:
        header = json.loads(bytes(view[LENGTH.size : end]))
    except (ValueError, RecursionError) as error:
        raise _broken(f"its header is not JSON ({error})") from None
    if not isinstance(header, dict) or header.keys() != {"features", "labels"}:
        raise _broken("its header does not describe features and labels")
    return header, end


class _ColumnsReader:
    """Reads the arrays one by one; `end` is the end of the last one."""

    def __init__(self, view: memoryview, end: int) -> None:
        self._view = view
        self.end = end

    def columns(self, what: str, description: object) -> Columns:
        if isinstance(description, dict) and description:
            return {
                name: self._array(f"{what}[{name[:MAX_NAME_CHARS]!r}]", entry) for name, entry in description.items()
            }
        return self._array(what, description)

    def _array(self, what: str, description: object) -> Array:
        match description:
            case [str(dtype_text), list(lengths)]:
                dtype, shape = _dtype(what, dtype_text), _shape(what, lengths)
            case _:
                raise _broken(f"{what} is not described by a dtype and a shape")
        start = self.end + -self.end % ALIGNMENT_BYTES
        nbytes = math.prod(shape) * dtype.itemsize
        if start + nbytes > len(self._view):
            raise _broken(f"{what} ends at byte {start + nbytes}, beyond the {len(self._view)} received")
        self.end = start + nbytes
        array: Array = np.frombuffer(self._view[start : self.end], dtype=dtype).reshape(shape)
        array.flags.writeable = False
        return array


def _dtype(what: str, text: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(text) if len(text) <= MAX_DTYPE_CHARS else None
    except (TypeError, ValueError, SyntaxError):
        dtype = None
    # only the canonical spelling: numpy would parse arbitrary dtype expressions
    if dtype is None or not is_plain(dtype) or dtype.str != text or not dtype.isnative:
        raise _broken(f"{what} has the unknown dtype {text[:MAX_DTYPE_CHARS]!r}")
    return dtype


def _shape(what: str, lengths: list[Any]) -> tuple[int, ...]:
    if not 1 <= len(lengths) <= MAX_NUM_AXES or not all(type(n) is int and n >= 1 for n in lengths):
        raise _broken(f"{what} has an impossible shape")
    return tuple(lengths)


def _broken(reason: str) -> ProtocolError:
    return ProtocolError("peer", f"a batch cannot be read: {reason}")
