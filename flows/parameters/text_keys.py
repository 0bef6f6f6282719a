"""Which keys are strings: on the command line their values are taken as they stand, without YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

__all__ = ["text_keys"]

NULLS = ("null", "~")


def text_keys(*models: type[BaseModel]) -> Callable[[str, str], bool]:
    """Return a function that says of a dotted key and its value whether that is a string, and no YAML.

    Notes
    -----
    A key that may be null or a list, too, is that for ``null`` and for what begins with ``[``. One that none of the
    models has is none of the strings.
    """

    def is_text(key: str, value: str) -> bool:
        kinds = {kind for model in models for kind in _kinds_at(model, key.split("."))}
        if str not in kinds or not kinds <= {str, tuple, type(None)}:
            return False
        is_null = type(None) in kinds and value.strip() in (*NULLS, "")
        return not is_null and not (tuple in kinds and value.lstrip().startswith("["))

    return is_text


def _kinds_at(annotation: Any, path: list[str]) -> Iterator[Any]:
    """Yield the plain types that a value at `path` may have, those of all alternatives that have such a key."""
    for kind in _members(annotation):
        if not path:
            yield get_origin(kind) or kind
        elif get_origin(kind) is dict:
            yield from _kinds_at(get_args(kind)[1], path[1:])
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and path[0] in kind.model_fields:
            yield from _kinds_at(kind.model_fields[path[0]].annotation, path[1:])


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a type, without what is said of them."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation
