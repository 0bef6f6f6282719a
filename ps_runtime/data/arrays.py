"""Features and labels as plain arrays: one array or a dict of arrays, rows on axis 0."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.object_arrays import plain_objects
from psflow.ps_runtime.data.torch_values import is_tensor, tensor_as_array
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, ArraySpec, Scaling

Array = NDArray[Any]
Columns = Array | dict[str, Array]

BLOCK_ROWS = 1024
"""Rows that are scaled at a time for a digest."""
MAX_NAMES = 4
"""Keys of a dict that an error shows."""
PLAIN_KINDS = "biufcSU"
"""Booleans, integers, floats, complex numbers and fixed-length strings: arrays fully described by their bytes."""


def is_plain(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of `dtype` are fully described by their bytes."""
    return dtype.kind in PLAIN_KINDS and dtype.itemsize > 0


def plain_arrays(features: object, labels: object) -> tuple[Columns, Columns | None]:
    """Return features and labels as C-contiguous, native-endian arrays of equal length.

    Raises
    ------
    InputError
        Lists all faults: not an array, an object dtype, no rows, different lengths.
    """
    faults: list[str] = []
    plain_features = _plain_columns("features", features, faults)
    plain_labels = None if labels is None else _plain_columns("labels", labels, faults)
    lengths = {name: len(a) for name, a in named_arrays(plain_features, plain_labels)}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        faults.append(f"expected the same number of rows in every array, but {counts}")
    if faults:
        raise InputError(tuple(faults))
    return plain_features, plain_labels


def named_arrays(features: Columns, labels: Columns | None = None) -> Iterator[tuple[str, Array]]:
    """Yield every array with its name in error messages, features first."""
    for what, columns in (("features", features), ("labels", labels)):
        if isinstance(columns, dict):
            yield from ((f"{what}[{name!r}]", array) for name, array in columns.items())
        elif columns is not None:
            yield what, columns


def array_specs(columns: Columns) -> tuple[ArraySpec, ...]:
    """Return name, dtype and row shape of each array of plain features or labels; text has any length."""
    named = columns if isinstance(columns, dict) else {"": columns}
    return tuple(ArraySpec(name, _dtype_name(array), array.shape[1:]) for name, array in named.items())


def zeros_of(specs: Sequence[ArraySpec], rows: int = 1) -> Columns:
    """Return rows of zeros and empty text for the arrays that `array_specs` describes."""
    arrays = {spec.name: np.zeros((rows, *spec.shape), spec.dtype) for spec in specs}
    return arrays.get("", arrays)


def _dtype_name(array: Array) -> str:
    return "str" if array.dtype.kind == "U" else str(array.dtype)


def map_columns(function: Callable[[Array], Array], columns: Columns) -> Columns:
    """Return `columns` with `function` applied to each array."""
    if isinstance(columns, dict):
        return {name: function(array) for name, array in columns.items()}
    return function(columns)


def num_rows(columns: Columns) -> int:
    """Return the length of axis 0 of plain features or labels."""
    return len(next(iter(columns.values())) if isinstance(columns, dict) else columns)


def as_bytes(array: Array) -> NDArray[np.uint8]:
    """Return the bytes of a plain array: a view, no copy."""
    return array.reshape(-1).view(np.uint8)


def digest_of(features: Columns, labels: Columns | None, columns: Sequence[str], scaling: Scaling | None = None) -> str:
    """Return 32 hexadecimal digits that identify plain arrays and column names. Reads all data.

    With a `scaling` the matrix holds stored values, and the digest is that of the scaled ones.
    """
    stored = None if scaling is None else f"features[{MATRIX!r}]"
    arrays = sorted(named_arrays(features, labels), key=lambda named: named[0])
    facts = [[name, "<f4" if name == stored else array.dtype.str, array.shape] for name, array in arrays]
    digest = hashlib.blake2b(json.dumps([facts, list(columns)]).encode(), digest_size=16)
    for name, array in arrays:
        if scaling is None or name != stored:
            digest.update(as_bytes(array).data)
            continue
        for start in range(0, len(array), BLOCK_ROWS):
            digest.update(as_bytes(scaling.apply(array[start : start + BLOCK_ROWS])).data)
    return digest.hexdigest()


def read_only_rows(array: Array, rows: slice | NDArray[np.int64]) -> Array:
    """Return some rows of a C-contiguous array, read-only: a view for a slice, otherwise a copy."""
    # take is faster than an index, unless a row is one number
    found = array[rows] if isinstance(rows, slice) or array.ndim == 1 else array.take(rows, axis=0)
    found.setflags(write=False)  # faster than its flags
    return found


def _plain_columns(what: str, value: object, faults: list[str]) -> Columns:
    if not isinstance(value, Mapping):
        array = _plain_array(what, value, faults)
        return {} if array is None else array
    if not value:
        faults.append(f"{what} is an empty dict: expected at least one array")
    faults += [f"{what} has the key {name!r}: expected a str" for name in value if not isinstance(name, str)]
    arrays = {str(name): _plain_array(f"{what}[{name!r}]", entry, faults) for name, entry in value.items()}
    return {name: array for name, array in arrays.items() if array is not None}


def _plain_array(what: str, value: object, faults: list[str]) -> Array | None:
    array = array_of(what, value, faults)
    if array is not None and array.size == 0:
        faults.append(f"{what} is empty, its shape is {list(array.shape)}: expected at least one row")
        return None
    # ascontiguousarray also makes a scalar one row
    return None if array is None else np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))


def array_of(what: str, value: Any, faults: list[str]) -> Array | None:
    """Return a value as a plain array, or None with the reason appended to `faults`.

    Python objects become texts, booleans or numbers if all of them are. `what` names the value in error messages.
    """
    if hasattr(value, "toarray"):  # numpy takes a sparse matrix for one object
        kind = f"{type(value).__module__.partition('.')[0]} {type(value).__name__}"
        faults.append(f"{what} is a sparse matrix ({kind}): expected an array; convert it first, with .toarray()")
        return None
    if isinstance(value, Mapping):
        names = ", ".join(repr(name) for name in list(value)[:MAX_NAMES])
        faults.append(f"{what} is a dict of {names}: expected an array; give each its own name among the others")
        return None
    holds_parts = isinstance(value, tuple) or (isinstance(value, list) and any(map(is_tensor, value[:1])))
    if holds_parts and any(np.ndim(part) for part in value):  # numpy would combine them into one array
        kind = f"a {type(value).__name__} of {len(value)} arrays"
        faults.append(f"{what} is {kind}: expected an array; give each a name, in a dict")
        return None
    if is_tensor(value):
        return tensor_as_array(what, value, faults)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        faults.append(f"{what} is not an array: {error}")
        return None
    if array.dtype == np.object_:
        plain, fault = plain_objects(array, what)
        faults += [fault] if fault else []
        return plain
    if not is_plain(array.dtype):
        faults.append(
            f"{what} has dtype {array.dtype}: expected numbers, booleans or fixed-length strings; "
            "convert it first, for example with .astype('float32')"
        )
        return None
    return array
