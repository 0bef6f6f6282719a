"""Makes up an example record for a model without copying a record of the training input."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import assert_never

from psflow.ps_runtime.columns.features import (
    Array,
    BucketIds,
    HashIds,
    IdentityIds,
    IsMissing,
    LogOnePlus,
    ManyIds,
    MinMax,
    Number,
    Standard,
    ValueWeights,
    VocabularyIds,
    singles,
)
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.reading import Column

Value = bool | int | float | str | list[float] | list[bool | int | float | str]

DAY = "2026-01-31"
MADE_UP: Mapping[str, float | str] = MappingProxyType(
    {"date": DAY, "timestamp": DAY, "bool": "true", "int64": 1, "float32": 1.0, "float64": 1.0, "string": "word"}
)
"""Values for columns of which nothing was learned, by type."""


def example_record(preprocessing: Preprocessing) -> dict[str, Value]:
    """Return a value for each raw column, in the order of the columns.

    Notes
    -----
    A value is the mean, the middle or the most frequent category if it was learned, or else the value that replaces
    missing ones; without either it is a constant. So each value is already part of the model.
    """
    typical = {
        single.column: _typical(single)
        for single in singles(preprocessing.features)
        if not isinstance(single, IsMissing)
    }
    return {column.name: _as_given(typical[column.name], column) for column in preprocessing.columns}


def _typical(
    single: Number | Array | VocabularyIds | HashIds | IdentityIds | BucketIds | ManyIds | ValueWeights,
) -> float | str | list[float] | None:
    """Return a typical value of a column; None if nothing was learned of it."""
    match single:
        case Array():
            return [0.0] * single.length
        case ManyIds():
            return _typical(single.of_each)
        case ValueWeights():
            return 1.0
        case _ if single.fill is not None:
            return single.fill
        case Number():
            return _middle(single)
        case VocabularyIds():
            return single.vocabulary[0]
        case HashIds():
            return None
        case IdentityIds():
            return 0.0
        case BucketIds():
            return single.edges[len(single.edges) // 2] if single.edges else None
    assert_never(single)


def _middle(number: Number) -> float | None:
    match number.normalizer:
        case Standard(mean, _):
            return mean
        case MinMax(minimum, maximum):
            return (minimum + maximum) / 2
        case LogOnePlus() | None:
            return None
    assert_never(number.normalizer)


def _as_given(value: float | str | list[float] | None, column: Column) -> Value:
    """Return a value as JSON represents one of the raw column."""
    if isinstance(value, list):
        return value
    of_each, is_list, _ = column.raw.type.partition("[]")
    if is_list:  # a list of one value
        one = _as_given(value, replace(column, raw=replace(column.raw, type=of_each), read_as=of_each))
        assert not isinstance(one, list)
        return [one]
    kinds = {column.raw.type, column.read_as}
    if isinstance(value, int | float) and kinds & {"date", "timestamp"}:
        value = _day(value)
    if value is None:
        value = next(found for kind, found in MADE_UP.items() if kind in kinds)
    match column.raw.type:
        case "int64":
            return round(float(value))
        case "float32" | "float64":
            return float(value)
        case "bool":
            return value == "true" if isinstance(value, str) else bool(round(value))
        case _:
            return value if isinstance(value, str) else f"{value:g}"


def _day(days_since_1970: float) -> str:
    try:
        return (datetime.date(1970, 1, 1) + datetime.timedelta(days=days_since_1970)).isoformat()
    except OverflowError:
        return DAY
