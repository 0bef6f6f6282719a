"""Describes a learned preprocessing in lines for a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

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
    Single,
    Standard,
    ValueWeights,
    VocabularyIds,
)
from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.reading import Column

MAX_SHOWN = 10


def feature_lines(features: Iterable[Feature], columns: Mapping[str, Column]) -> Iterator[str]:
    """Yield a line for each group, and one for each column with something to report."""
    for feature in features:
        if isinstance(feature, FeatureGroup):
            names = shown(member.name for member in feature.members)
            yield f"{feature.name}: a matrix of {_counted(len(feature.members), 'column')}, {names}"
            yield from feature_lines(feature.members, columns)
        elif sentence := _sentence(feature, columns[feature.column]):
            yield f"{feature.name}: {sentence}"


def _sentence(feature: Single, column: Column) -> str:
    parts = ", ".join((*_learned(feature), *_lifetime(feature), *_missing(feature, column)))
    return "; ".join(filter(None, (parts, _note(feature, column))))


def cross_line(cross: Cross) -> str:
    """Return the description of a cross."""
    made_of = f"{cross.name}: {' x '.join(cross.members)}, hashed into {_counted(cross.num_buckets, 'bucket')}"
    return ", ".join(filter(None, (made_of, str(cross.lifetime))))


def label_line(label: Label) -> str:
    """Return the description of the labels."""
    if label.classes is None:
        what = "whole numbers" if label.dtype == "int64" else "numbers"
        if label.normalizer is not None:
            what += f", {_normalized(label.normalizer)}"
    else:
        what = f"classes {shown(map(repr, label.classes))}"
    num_missing = label.column.num_missing
    line = f"{label.column.name}: labels, {what}" + (
        f", {_counted(num_missing, 'missing value')}" if num_missing else ""
    )
    return "; ".join(filter(None, (line, label.column.looks_like)))


def shown(names: Iterable[str]) -> str:
    """Return the first ten names, and dots if there are more."""
    texts = list(names)
    return ", ".join(texts[:MAX_SHOWN]) + (", ..." if len(texts) > MAX_SHOWN else "")


def _learned(feature: Single) -> Iterator[str]:
    match feature:
        case Number():
            if feature.normalizer is not None:
                yield _normalized(feature.normalizer)
        case IsMissing() | Array():
            pass
        case VocabularyIds():
            yield _counted(len(feature.vocabulary), "category", "categories")
        case HashIds():
            yield f"strings hashed into {_counted(feature.num_buckets, 'bucket')}"
        case IdentityIds():
            yield _counted(feature.limit, "id")
        case BucketIds():
            yield _counted(len(feature.edges) + 1, "bucket")
            if feature.edges:
                yield f"edges {shown(f'{edge:.6g}' for edge in feature.edges)}"
        case ManyIds(of_each, max_values, combiner, weights):
            yield f"at most {_counted(max_values, 'value')} in a cell"
            yield from _learned(of_each)
            if of_each.embedding is not None:
                yield f"combiner {combiner}"
            if weights is not None:
                yield f"weights in {weights!r}"
        case ValueWeights():
            yield "weights of values"
        case _:
            assert_never(feature)


def _lifetime(feature: Single) -> Iterator[str]:
    if isinstance(feature, ManyIds):
        yield from _lifetime(feature.of_each)
    if isinstance(feature, VocabularyIds | HashIds | IdentityIds | BucketIds) and feature.lifetime.is_limited:
        yield str(feature.lifetime)


def _normalized(normalizer: Normalizer) -> str:
    match normalizer:
        case Standard(mean, deviation):
            return (
                f"mean {mean:.6g}, standard deviation {deviation:.6g}"
                if deviation
                else f"constant {mean:.6g} becomes 0"
            )
        case MinMax(minimum, maximum):
            same = minimum == maximum
            return f"constant {minimum:.6g} becomes 0" if same else f"minimum {minimum:.6g}, maximum {maximum:.6g}"
        case LogOnePlus():
            return "log(1 + x)"
    assert_never(normalizer)


def _missing(feature: Single, column: Column) -> Iterator[str]:
    """Yield the number of missing values and their replacement; for an indicator, its column does so."""
    if isinstance(feature, IsMissing | ManyIds | ValueWeights):
        return
    fill = None if isinstance(feature, Array) else feature.fill
    if fill is not None:
        become = "becomes" if column.num_missing == 1 else "become"
        value = repr(fill) if isinstance(fill, str) else f"{fill:.6g}"
        yield f"{_counted(column.num_missing, 'missing value')} {become} {value}"
    elif column.num_missing:
        yield _counted(column.num_missing, "missing value")


def _note(feature: Single, column: Column) -> str:
    if isinstance(feature, ManyIds):
        return _note(feature.of_each, column)
    if isinstance(feature, VocabularyIds) and feature.is_learned:
        return "; ".join(filter(None, (f"the most frequent is {feature.vocabulary[0]!r}", column.looks_like)))
    if isinstance(feature, HashIds):
        return column.looks_like
    if isinstance(feature, Number) and feature.normalizer is None and column.loses_digits:
        return (
            "it has whole numbers above 2**24, which float32 rounds: set normalize, or vocabulary or hash_buckets if "
            "they are ids"
        )
    return ""


def _counted(count: int, noun: str, plural: str = "") -> str:
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
