"""Describes the differences between two learned preprocessings in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psflow.ps_runtime.columns.crossing import Cross
from psflow.ps_runtime.columns.describing import shown
from psflow.ps_runtime.columns.facts import cross_facts, feature_facts, label_facts
from psflow.ps_runtime.columns.features import Feature, FeatureGroup, singles
from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.reading import NUMBERS, Column, fits

CONFIGURED = {"members": "columns", "num_buckets": "hash_buckets", "limit": "num_ids"} | {
    key: key for key in ("admit_after", "expire_after_steps")
}
"""Facts set by a configuration key, with the name of that key."""


def column_differences(mine: Mapping[str, Column], theirs: Mapping[str, Column]) -> Iterator[str]:
    """Yield the columns of another type; `feature_differences` reports missing and new ones."""
    for name, column in mine.items():
        other = theirs.get(name)
        if other is not None and not (other.read_as == column.read_as and fits(other.raw.type, column.raw.type)):
            yield f"column {name!r} is {_typed(other)}, expected {_typed(column)}"
        if other is not None and other.separator != column.separator:
            yield f"column {name!r} has the separator {other.separator!r}, expected {column.separator!r}"


def feature_differences(mine: Sequence[Feature], theirs: Sequence[Feature]) -> Iterator[str]:
    """Yield the differences of features: which there are, and what was learned for each."""
    yield from _name_differences("feature", [f.name for f in mine], [f.name for f in theirs])
    others = {feature.name: feature for feature in theirs}
    for feature in mine:
        other = others.get(feature.name)
        if isinstance(feature, FeatureGroup) and isinstance(other, FeatureGroup):
            names = [[member.name for member in group.members] for group in (feature, other)]
            yield from _name_differences(f"in group {feature.name!r} column", *names)
        elif other is not None and isinstance(feature, FeatureGroup) != isinstance(other, FeatureGroup):
            yield f"feature {feature.name!r} is {'a group' if isinstance(other, FeatureGroup) else 'one column'}"
    learned = {single.name: single for single in singles(theirs)}
    for single in singles(mine):
        if single.name in learned:
            facts, others = (feature_facts(feature) for feature in (single, learned[single.name]))
            facts.pop("is_learned", None)  # the origin of a vocabulary does not change the ids
            yield from _fact_differences(f"column {single.name!r}", facts, others)


def cross_differences(mine: Sequence[Cross], theirs: Sequence[Cross]) -> Iterator[str]:
    """Yield the differences of crosses."""
    yield from _name_differences("cross", [cross.name for cross in mine], [cross.name for cross in theirs])
    others = {cross.name: cross for cross in theirs}
    for cross in mine:
        if cross.name in others:
            yield from _fact_differences(f"cross {cross.name!r}", cross_facts(cross), cross_facts(others[cross.name]))


def label_differences(mine: Label | None, theirs: Label | None) -> Iterator[str]:
    """Yield the differences of labels."""
    if mine is None or theirs is None:
        if mine is not theirs:
            names = ("none" if label is None else repr(label.column.name) for label in (theirs, mine))
            yield "the label is {}, expected {}".format(*names)
        return
    if mine.column.name != theirs.column.name:
        yield f"the label is {theirs.column.name!r}, expected {mine.column.name!r}"
        return
    facts, others = ({**label_facts(label), "column": _typed(label.column)} for label in (mine, theirs))
    yield from _fact_differences(f"the label {mine.column.name!r}", facts, others)


def _typed(column: Column) -> str:
    is_plain = column.read_as == column.raw.type or (column.raw.type in NUMBERS and column.read_as == "float64")
    return column.raw.type if is_plain else f"{column.raw.type} read as {column.read_as}"


def _name_differences(what: str, mine: Sequence[str], theirs: Sequence[str]) -> Iterator[str]:
    ours, others = set(mine), set(theirs)
    yield from (f"{what} {name!r} is missing" for name in mine if name not in others)
    yield from (f"{what} {name!r} is new" for name in theirs if name not in ours)
    if ours == others and list(mine) != list(theirs):
        place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
        yield f"{what} {place + 1} is {theirs[place]!r}, expected {mine[place]!r}"


def _fact_differences(what: str, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    if mine.get("kind") != theirs.get("kind"):
        yield f"{what} becomes {_named(theirs['kind'])}, expected {_named(mine['kind'])}"
        return
    for key, value in mine.items():
        other = theirs[key]
        if value == other:
            continue
        if isinstance(value, list) and isinstance(other, list):
            yield f"{what} has other {_named(key)}: {_list_difference(value, other)}"
        elif isinstance(value, dict) and isinstance(other, dict):
            yield from _fact_differences(what, value, other)
        else:
            yield f"{what} has {_named(key)} {_shown(other)}, expected {_shown(value)}"


def _list_difference(mine: list[Any], theirs: list[Any]) -> str:
    ours, others = set(mine), set(theirs)
    new, missing = [v for v in theirs if v not in ours], [v for v in mine if v not in others]
    parts = [
        f"{change} {shown(map(repr, values))}" for change, values in (("new", new), ("missing", missing)) if values
    ]
    if parts:
        return "; ".join(parts)
    place = next(i for i, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b)
    return f"number {place + 1} is {theirs[place]!r}, expected {mine[place]!r}"


def _named(key: str) -> str:
    return CONFIGURED[key] if key in CONFIGURED else key.replace("_", " ")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return _named(value["kind"])
    return "none" if value is None else repr(value)
