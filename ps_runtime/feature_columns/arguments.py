"""Checks the arguments of the functions that make feature columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from psflow.ps_runtime.errors import ArgumentTypeError, UsageError, did_you_mean
from psflow.ps_runtime.feature_columns.kinds import COMBINERS, CategoricalColumn, SequenceCategoricalColumn

STRING = "string"


def check_key(key: Any, argument: str = "key") -> None:
    """Raise ArgumentTypeError if a key is not text, UsageError if it is empty."""
    fault = (f"{argument} is {key!r}, expected the name of a feature",)
    if not isinstance(key, str):
        raise ArgumentTypeError(fault)
    if not key:
        raise UsageError(fault)


def check_categorical(column: Any, argument: str = "categorical_column", *, sequences: bool = False) -> None:
    """Raise ArgumentTypeError unless given a categorical column, which may be sequential if `sequences`."""
    if sequences and isinstance(column, SequenceCategoricalColumn):
        return
    if not isinstance(column, get_args(CategoricalColumn)):
        raise ArgumentTypeError((f"{argument} is {column!r}, expected a categorical column",))


def check_integer(what: str, value: Any, low: int, high: int, expected: str) -> None:
    """Raise ArgumentTypeError if a value is not an integer, and UsageError if it is not in ``[low, high)``."""
    fault = (f"{what} is {value!r}, expected {expected}",)
    if not whole_number(value):
        raise ArgumentTypeError(fault)
    if not low <= value < high:
        raise UsageError(fault)


def checked_list(what: str, values: Any, at_least: int) -> list[Any]:
    """Return an ordered argument as a list.

    Raises
    ------
    ArgumentTypeError
        If it has no order or no length, such as a set or a generator, or is a single text.
    UsageError
        If it is None, or has fewer than `at_least` values.
    """
    expected = f"expected a list of {at_least} or more"
    is_ordered = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if values is not None and not is_ordered and not hasattr(values, "__array__"):  # arrays of numpy and pandas
        raise ArgumentTypeError((f"{what} is {values!r}, {expected}, in order",))
    if values is None or len(values) < at_least:
        raise UsageError((f"{what} is {values!r}, {expected}",))
    return list(values)


def checked_dtype(dtype: Any, key: str, kinds: str) -> str:
    """Return the name of a dtype, ``string`` for texts of any length.

    Raises UsageError if it is not a dtype, or one of another kind.
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
    """Return the shape of the numbers of an example; a number is the length of a vector, ``()`` a scalar.

    Raises
    ------
    ArgumentTypeError
        If a length is not an integer.
    UsageError
        If a length is not positive.
    """
    lengths = tuple(shape) if isinstance(shape, list | tuple | np.ndarray) else (shape,)
    expected = f"expected one or more integers of at least 1, got {shape!r}"
    if not all(whole_number(length) for length in lengths):
        raise ArgumentTypeError((f"shape of column {key!r}: {expected}",))
    if not all(length >= 1 for length in lengths):
        raise UsageError((f"shape of column {key!r}: {expected}",))
    return tuple(int(length) for length in lengths)


def checked_default(value: Any, shape: tuple[int, ...], dtype: str, key: str) -> tuple[float, ...] | None:
    """Return the default of missing numbers: as many as an example has, in C order.

    Raises
    ------
    UsageError
        If it is an array of another shape.
    ArgumentTypeError
        If it does not consist of numbers, or has fractions although `dtype` is an integer dtype.
    """
    if value is None:
        return None
    given = np.asarray(value)
    if given.dtype.kind not in ("iuf" if np.dtype(dtype).kind == "f" else "iu"):
        raise ArgumentTypeError((f"default_value of column {key!r} is {value!r}, expected numbers of {dtype}",))
    if given.shape not in ((), shape):
        raise UsageError(
            (f"default_value of column {key!r} has the shape {list(given.shape)}, expected {list(shape)}",)
        )
    filled = np.broadcast_to(given, shape).reshape(math.prod(shape))
    return tuple(filled.tolist())


def check_combiner(combiner: Any, what: str) -> None:
    """Raise UsageError if `combiner` is unknown."""
    if combiner not in COMBINERS:
        near = did_you_mean(combiner, COMBINERS) if isinstance(combiner, str) else ""
        raise UsageError((f"combiner of {what} is {combiner!r}, expected {', '.join(COMBINERS)}{near}",))


def whole_number(value: Any) -> bool:
    """Return whether a value is an integer, and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
