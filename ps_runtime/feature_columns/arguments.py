"""What the functions that make feature columns check of their arguments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import ArgumentTypeError, UsageError, did_you_mean
from psflow.ps_runtime.feature_columns.kinds import COMBINERS

__all__ = ["STRING", "check_combiner", "check_key", "checked_default", "checked_dtype", "checked_shape", "whole_number"]

STRING = "string"


def check_key(key: Any) -> None:
    """Raise UsageError if a key is no text."""
    if not isinstance(key, str) or not key:
        raise UsageError((f"key is {key!r}, expected the name of a feature",))


def checked_dtype(dtype: Any, key: str, kinds: str) -> str:
    """Return the name of a dtype, ``string`` for texts of any length.

    Parameters
    ----------
    dtype : dtype-like
        As numpy takes it, or ``"string"``.
    key : str
        Of the column, for the error.
    kinds : str
        The kinds of dtypes that the column takes, as numpy abbreviates them, such as ``"iuU"``.

    Raises
    ------
    UsageError
        If it is no dtype, or one of another kind.
    """
    names = {"f": "a float", "i": "an integer", "U": "a string"}
    expected = " or ".join(name for kind, name in names.items() if kind in kinds)
    try:
        known = np.dtype(str if isinstance(dtype, str) and dtype == STRING else dtype)
    except TypeError:
        known = None
    kind = "U" if known is not None and known.kind == "S" else "" if known is None else known.kind
    if dtype is None or known is None or kind not in kinds:
        raise UsageError((f"dtype of column {key!r} is {dtype!r}, expected {expected} dtype, such as 'int64'",))
    return STRING if kind == "U" else known.name


def checked_shape(shape: Any, key: str) -> tuple[int, ...]:
    """Return the shape of the numbers of an example; one number is the length of a vector.

    Raises
    ------
    ArgumentTypeError
        If a length is no integer.
    UsageError
        If a length is not positive.
    """
    lengths = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    expected = f"expected one or more integers of at least 1, got {shape!r}"
    if not all(whole_number(length) for length in lengths):
        raise ArgumentTypeError((f"shape of column {key!r}: {expected}",))
    if not all(length >= 1 for length in lengths):
        raise UsageError((f"shape of column {key!r}: {expected}",))
    return tuple(int(length) for length in lengths)


def checked_default(value: Any, shape: tuple[int, ...], dtype: str, key: str) -> tuple[float, ...] | None:
    """Return what stands for numbers that are missing: as many as an example has, in C order.

    Raises
    ------
    UsageError
        If it is an array of another shape.
    ArgumentTypeError
        If it is not of numbers, or of fractions where `dtype` is of integers.
    """
    if value is None:
        return None
    given = np.asarray(value)
    if given.dtype.kind not in ("iuf" if np.dtype(dtype).kind == "f" else "iu"):
        raise ArgumentTypeError((f"default_value of column {key!r} is {value!r}, expected numbers of {dtype}",))
    if given.shape not in ((), shape):
        raise UsageError(
            (f"default_value of column {key!r} has the shape {list(given.shape)}, expected that of it, {list(shape)}",)
        )
    filled = np.broadcast_to(given, shape).reshape(math.prod(shape))
    return tuple(filled.tolist())


def check_combiner(combiner: Any, what: str) -> None:
    """Raise UsageError if `combiner` does not join the vectors or weights of ids."""
    if combiner not in COMBINERS:
        near = did_you_mean(combiner, COMBINERS) if isinstance(combiner, str) else ""
        raise UsageError((f"combiner of {what} is {combiner!r}, expected {', '.join(COMBINERS)}{near}",))


def whole_number(value: Any) -> bool:
    """Return whether a value is an integer, and no boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
