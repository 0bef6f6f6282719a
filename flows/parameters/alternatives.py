"""Of a value that fits none of several alternatives: the faults of the one that was most likely meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

__all__ = ["Fault", "likely_faults"]

OTHER_KINDS = frozenset(
    {
        "bool_type",
        "dict_type",
        "float_type",
        "int_type",
        "literal_error",
        "model_type",
        "string_type",
        "tuple_type",
    }
)
"""What pydantic calls a value of another kind, of those that parameters have; all else it finds wrong within one."""


@dataclass(frozen=True)
class Fault:
    """What is wrong in one place."""

    path: tuple[str, ...]
    details: Sequence[ErrorDetails]


def likely_faults(
    details: Iterable[ErrorDetails], model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]
) -> Iterator[Fault]:
    """Yield the faults without those of alternatives that are not meant, in their order.

    Where some alternative takes a value of that kind, and finds fault with what is in it, that is the one.
    """
    yield from _faults([(detail, _tags(detail["loc"], model, kinds)) for detail in details], 0)


Tagged = tuple[ErrorDetails, tuple[int, ...]]
"""With the places in its ``loc`` that are no keys, but say which alternative it is."""


def _faults(tagged: Sequence[Tagged], depth: int) -> Iterator[Fault]:
    """Yield the faults of details whose first `depth` tags are alike."""
    for place, group in groupby(tagged, lambda one: _place(one, depth)):
        found = list(group)
        if place is None:
            yield from (Fault(_path(one), [one[0]]) for one in found)
            continue
        alternatives = [list(some) for _, some in groupby(found, lambda one: one[0]["loc"][one[1][depth]])]
        meant = [some for some in alternatives if not _is_other_kind(some, depth)]
        if meant or len(alternatives) == 1:
            yield from _faults(max(meant or alternatives, key=_farthest), depth + 1)
        else:
            yield Fault(_path(found[0]), [detail for detail, _ in found])


def _place(one: Tagged, depth: int) -> tuple[int | str, ...] | None:
    """Return where the tag number `depth` of a detail stands; None if it has fewer."""
    detail, tags = one
    return detail["loc"][: tags[depth]] if depth < len(tags) else None


def _is_other_kind(alternative: Sequence[Tagged], depth: int) -> bool:
    [(detail, tags), *others] = alternative
    is_here = not others and len(detail["loc"]) == tags[depth] + 1
    return is_here and detail["type"] in OTHER_KINDS


def _farthest(alternative: Sequence[Tagged]) -> int:
    return max(len(_path(one)) for one in alternative)


def _path(one: Tagged) -> tuple[str, ...]:
    detail, tags = one
    return tuple(str(part) for place, part in enumerate(detail["loc"]) if place not in tags)


def _tags(loc: Sequence[int | str], model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]) -> tuple[int, ...]:
    """Return which parts of a place are tags: those that follow a value of which there are several alternatives."""
    tags, here = [], [model]
    for place, part in enumerate(loc):
        here = list(map(_bare, here))
        unions = [annotation for annotation in here if _is_union(annotation)]
        if part in kinds and (unions or kinds[str(part)] in here):
            tags.append(place)
            here = [kinds[str(part)]]
        elif unions:
            tags.append(place)
            here = [member for union in unions for member in get_args(union)]
        else:
            here = [below for annotation in here for below in _below(annotation, part)]
    return tuple(tags)


def _bare(annotation: Any) -> Any:
    """Return a type without what is said of it, and without None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    others = [member for member in get_args(annotation) if member is not type(None)]
    is_optional = get_origin(annotation) in (Union, UnionType) and len(others) == 1
    return _bare(others[0]) if is_optional else annotation


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _below(annotation: Any, part: int | str) -> Iterator[Any]:
    """Yield what stands at a key of a mapping or model, or at a place of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        if field is not None:
            yield field.annotation
    elif get_origin(annotation) is dict:
        yield get_args(annotation)[1]
    elif isinstance(part, int):
        yield from (item for item in get_args(annotation) if item is not ...)
