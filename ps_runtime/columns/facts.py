"""Converts features to plain data and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar, assert_never

from psflow.ps_runtime.columns.crossing import Cross
from psflow.ps_runtime.columns.features import (
    Array,
    BucketIds,
    Feature,
    FeatureGroup,
    HashIds,
    IdentityIds,
    IsMissing,
    LogOnePlus,
    ManyIds,
    MinMax,
    Normalizer,
    Number,
    OneId,
    Scalar,
    Standard,
    ValueWeights,
    VocabularyIds,
)
from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column, split_type
from psflow.ps_runtime.columns.row_lifetime import RowLifetime
from psflow.ps_runtime.errors import InputError

T = TypeVar("T")


def raw_facts(raw: RawColumn) -> dict[str, Any]:
    """Return a raw column as plain data."""
    return asdict(raw)


def raw_from(facts: Mapping[str, Any]) -> RawColumn:
    """Read the result of `raw_facts`; KeyError, TypeError or ValueError if it is invalid."""
    return RawColumn(str(facts["name"]), _type_from(facts["type"]))


def column_facts(column: Column) -> dict[str, Any]:
    """Return a column as plain data."""
    # the deep copies of asdict are slow for thousands of columns
    return {field.name: getattr(column, field.name) for field in fields(column)} | {"raw": raw_facts(column.raw)}


def column_from(facts: Mapping[str, Any]) -> Column:
    """Read the result of `column_facts`; KeyError, TypeError or ValueError if it is invalid."""
    return Column(
        raw_from(facts["raw"]),
        _type_from(facts["read_as"]),
        int(facts["num_missing"]),
        bool(facts["loses_digits"]),
        str(facts["looks_like"]),
        _optional(str, facts["separator"]),
    )


def label_facts(label: Label) -> dict[str, Any]:
    """Return the label description as plain data."""
    classes = None if label.classes is None else list(label.classes)
    normalizer = None if label.normalizer is None else _normalizer_facts(label.normalizer)
    return {"column": column_facts(label.column), "dtype": label.dtype, "classes": classes, "normalizer": normalizer}


def label_from(facts: Mapping[str, Any]) -> Label:
    """Read the result of `label_facts`; KeyError, TypeError or ValueError if it is invalid."""
    if facts["dtype"] not in ("int64", "float32"):
        raise ValueError(f"the dtype of labels is {facts['dtype']!r}, expected int64 or float32")
    classes = None if facts["classes"] is None else tuple(map(str, facts["classes"]))
    return Label(
        column_from(facts["column"]), str(facts["dtype"]), classes, _optional(_standard_from, facts["normalizer"])
    )


def feature_facts(feature: Feature) -> dict[str, Any]:
    """Return a feature as plain data."""
    match feature:
        case Number():
            normalizer = None if feature.normalizer is None else _normalizer_facts(feature.normalizer)
            return {"kind": "number", "column": feature.column, "fill": feature.fill, "normalizer": normalizer}
        case IsMissing():
            return {"kind": "is_missing", "column": feature.column}
        case Array():
            return {"kind": "array", **asdict(feature)}
        case VocabularyIds():
            return {"kind": "vocabulary_ids", **asdict(feature), "vocabulary": list(feature.vocabulary)}
        case HashIds():
            return {"kind": "hash_ids", **asdict(feature)}
        case IdentityIds():
            return {"kind": "identity_ids", **asdict(feature)}
        case BucketIds():
            return {"kind": "bucket_ids", **asdict(feature), "edges": list(feature.edges)}
        case ManyIds():
            return {"kind": "many_ids", **asdict(feature), "of_each": feature_facts(feature.of_each)}
        case ValueWeights():
            return {"kind": "value_weights", **asdict(feature)}
        case FeatureGroup():
            return {"kind": "group", "name": feature.name, "members": list(map(feature_facts, feature.members))}
    assert_never(feature)


def feature_from(facts: Mapping[str, Any]) -> Feature:
    """Read the result of `feature_facts`; KeyError, TypeError or ValueError if it is invalid."""
    match facts["kind"]:
        case "number" | "is_missing":
            return _scalar_from(facts)
        case "array":
            return Array(str(facts["column"]), int(facts["length"]))
        case "vocabulary_ids":
            vocabulary, fill = tuple(map(str, facts["vocabulary"])), _optional(str, facts["fill"])
            embedding, lifetime = _optional(int, facts["embedding"]), RowLifetime.from_facts(facts["lifetime"])
            if len(set(vocabulary)) < len(vocabulary) or (fill is not None and fill not in vocabulary):
                raise ValueError(
                    f"the vocabulary of column {facts['column']!r} repeats a value, or lacks that of missing values"
                )
            return VocabularyIds(str(facts["column"]), vocabulary, fill, embedding, bool(facts["is_learned"]), lifetime)
        case "hash_ids":
            fill, embedding = _optional(str, facts["fill"]), _optional(int, facts["embedding"])
            lifetime = RowLifetime.from_facts(facts["lifetime"])
            return HashIds(str(facts["column"]), int(facts["num_buckets"]), fill, embedding, lifetime)
        case "identity_ids":
            limit, embedding = int(facts["limit"]), _optional(int, facts["embedding"])
            fill_number, lifetime = _optional(float, facts["fill"]), RowLifetime.from_facts(facts["lifetime"])
            return IdentityIds(str(facts["column"]), limit, fill_number, embedding, lifetime)
        case "bucket_ids":
            edges, embedding = tuple(map(float, facts["edges"])), _optional(int, facts["embedding"])
            fill_number, lifetime = _optional(float, facts["fill"]), RowLifetime.from_facts(facts["lifetime"])
            return BucketIds(str(facts["column"]), edges, fill_number, embedding, lifetime)
        case "many_ids":
            of_each, weights = feature_from(facts["of_each"]), _optional(str, facts["weights"])
            if not isinstance(of_each, OneId):
                raise ValueError(f"the values of a cell become {type(of_each).__name__}, expected ids")
            return ManyIds(of_each, int(facts["max_values"]), str(facts["combiner"]), weights)
        case "value_weights":
            return ValueWeights(str(facts["column"]), int(facts["max_values"]))
        case "group":
            return FeatureGroup(str(facts["name"]), tuple(map(_scalar_from, facts["members"])))
        case kind:
            raise ValueError(f"unknown kind of feature {kind!r}")


def cross_facts(cross: Cross) -> dict[str, Any]:
    """Return a cross as plain data."""
    return {**asdict(cross), "members": list(cross.members)}


def cross_from(facts: Mapping[str, Any]) -> Cross:
    """Read the result of `cross_facts`; KeyError, TypeError or ValueError if it is invalid."""
    members, embedding = tuple(map(str, facts["members"])), _optional(int, facts["embedding"])
    lifetime = RowLifetime.from_facts(facts["lifetime"])
    return Cross(str(facts["name"]), members, int(facts["num_buckets"]), embedding, lifetime)


def _scalar_from(facts: Mapping[str, Any]) -> Scalar:
    match facts["kind"]:
        case "number":
            normalizer = _optional(_normalizer_from, facts["normalizer"])
            return Number(str(facts["column"]), _optional(float, facts["fill"]), normalizer)
        case "is_missing":
            return IsMissing(str(facts["column"]))
        case kind:
            raise ValueError(f"unknown kind of number {kind!r}")


def _normalizer_facts(normalizer: Normalizer) -> dict[str, Any]:
    match normalizer:
        case Standard():
            return {"kind": "standard", **asdict(normalizer)}
        case MinMax():
            return {"kind": "min_max", **asdict(normalizer)}
        case LogOnePlus():
            return {"kind": "log1p"}
    assert_never(normalizer)


def _normalizer_from(facts: Mapping[str, Any]) -> Normalizer:
    match facts["kind"]:
        case "standard":
            return _standard_from(facts)
        case "min_max":
            return MinMax(float(facts["minimum"]), float(facts["maximum"]))
        case "log1p":
            return LogOnePlus()
        case kind:
            raise ValueError(f"unknown normalization {kind!r}")


def _standard_from(facts: Mapping[str, Any]) -> Standard:
    return Standard(float(facts["mean"]), float(facts["standard_deviation"]))


def _type_from(text: Any) -> str:
    try:
        split_type(str(text))
    except InputError as error:
        raise ValueError(str(error)) from None
    return str(text)


def _optional(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)
