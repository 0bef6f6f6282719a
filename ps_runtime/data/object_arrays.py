"""Converts arrays of Python objects, such as a pandas column of texts, to plain arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

BOOLEANS, NUMBERS, TEXTS = "booleans", "numbers", "texts"
MISSING = ("NoneType", "NAType", "NaTType")
"""Types of missing values, besides NaN."""
MAX_SHOWN = 40
"""Characters of a value in an error message."""


def plain_objects(objects: NDArray[np.object_], what: str) -> tuple[NDArray[Any] | None, str]:
    """Return texts, booleans or numbers as an array of their own dtype, or None and the fault.

    Examples
    --------
    >>> plain_objects(np.array(["a", "bc"], dtype=object), "x")
    (array(['a', 'bc'], dtype='<U2'), '')
    >>> plain_objects(np.array(["a", None], dtype=object), "x")
    (None, "x has dtype object, None in row 1: expected texts, as 'a' in row 0; fill it, or leave out its row")
    """
    kinds = {_kind_of_type(kind) for kind in set(map(type, objects.flat))}
    if len(kinds) > 1 or "" in kinds:
        return None, _fault_of_kinds(objects, what)
    if kinds == {TEXTS} and any(str(text).endswith("\0") for text in objects.flat):
        return None, f"{what} has a text that ends with a NUL character, which numpy would drop: remove it"
    array = np.array(objects.tolist()).reshape(objects.shape)
    has_integers = kinds == {NUMBERS} and not any(isinstance(number, float | np.floating) for number in objects.flat)
    if array.dtype.hasobject or (has_integers and array.dtype.kind == "f"):
        return None, f"{what} has integers that do not fit one dtype: expected numbers of int64"
    if array.dtype.kind == "f" and (changed := _changed_integer(objects, array)) is not None:
        found = f"{what} has {_shown(objects.flat[changed])} in {_place(objects, changed)}, beside floats"
        return None, f"{found}: float64 cannot hold this integer; round it, or give only integers"
    return array, ""


def _changed_integer(objects: NDArray[np.object_], floats: NDArray[np.floating]) -> int | None:
    """Return the position of the first integer that changes as a float."""
    pairs = enumerate(zip(objects.flat, floats.flat, strict=True))
    return next((i for i, (value, near) in pairs if isinstance(value, int | np.integer) and value != int(near)), None)


def _fault_of_kinds(objects: NDArray[np.object_], what: str) -> str:
    """Describe the first object of another kind than those before it."""
    kinds = [_kind_of_type(type(value)) for value in objects.flat]
    first = next((place for place, kind in enumerate(kinds) if kind), None)
    expected = f"{TEXTS}, {BOOLEANS} or {NUMBERS}"
    if first is not None:
        expected = f"{kinds[first]}, as {_shown(objects.flat[first])} in {_place(objects, first)}"
    wrong = next(place for place, kind in enumerate(kinds) if first is None or kind != kinds[first])
    value = objects.flat[wrong]
    found = f"{what} has dtype object, {_shown(value)} in {_place(objects, wrong)}"
    return f"{found}: expected {expected}; {_advice(value, objects.ndim)}"


def _advice(value: Any, num_axes: int) -> str:
    if type(value).__name__ in MISSING or (isinstance(value, float) and math.isnan(value)):
        return "fill it, or leave out its row"
    if isinstance(value, list | tuple | np.ndarray):
        return "make one array of all rows, as with numpy.stack"
    if isinstance(value, bytes):
        return "decode it"
    if num_axes > 1:
        return "give columns of several kinds by name, as dict(...) of a DataFrame"
    return "convert it first, for example with .astype('float32') or .astype(str)"


def _kind_of_type(kind: type) -> str:
    """Return the kind of values of a type; empty if an array cannot hold them."""
    if issubclass(kind, str):
        return TEXTS
    if issubclass(kind, bool | np.bool_):  # before numbers: a bool is an int
        return BOOLEANS
    return NUMBERS if issubclass(kind, int | float | np.integer | np.floating) else ""


def _place(objects: NDArray[np.object_], number: int) -> str:
    row, *others = (int(index) for index in np.unravel_index(number, objects.shape or (1,)))  # a scalar is one row
    return f"row {row}" + (f", column {others[0]}" if others else "")


def _shown(value: Any) -> str:
    described = repr(value)
    return described if len(described) <= MAX_SHOWN else described[:MAX_SHOWN] + "..."
