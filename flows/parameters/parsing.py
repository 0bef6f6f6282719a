"""Parses settings into the parameters of a flow, with a sentence for each fault that pydantic finds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from psflow.flows.parameters.base import EXPERIMENT, FUNCTION, MODEL_NAME, NO_MAPPING, KeyFaultsError
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.errors import ConfigError, did_you_mean
from psflow.ps_runtime.specs.arguments import NAME, NAME_IN_WORDS

OTHER_KINDS = frozenset(
    {
        "bool_type",
        "dict_type",
        "float_type",
        "int_type",
        "literal_error",
        "model_type",
        NO_MAPPING,
        "string_type",
        "tuple_type",
    }
)
"""Error types of pydantic for values of another kind; all other types are faults within a value."""


@dataclass(frozen=True)
class Fault:
    """A fault at one place of the settings."""

    path: tuple[str, ...]
    details: Sequence[ErrorDetails]


def likely_faults(
    details: Iterable[ErrorDetails], model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]
) -> Iterator[Fault]:
    """Yield the faults in order, without those of unlikely alternatives.

    An alternative that accepts the kind of the value, and finds faults within it, is the likely one.
    """
    yield from _faults([(detail, _tags(detail["loc"], model, kinds)) for detail in details], 0)


Tagged = tuple[ErrorDetails, tuple[int, ...]]
"""A fault, and the indexes in its ``loc`` that name an alternative rather than a key."""


def _faults(tagged: Sequence[Tagged], depth: int) -> Iterator[Fault]:
    """Yield the faults of details whose first `depth` tags are equal."""
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
    """Return the place of tag number `depth` of a detail; None if it has fewer."""
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
    """Return which parts of a place are tags: those that follow a value with several alternatives."""
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
    """Return a type without annotations and None."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    others = [member for member in get_args(annotation) if member is not type(None)]
    is_optional = get_origin(annotation) in (Union, UnionType) and len(others) == 1
    return _bare(others[0]) if is_optional else annotation


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _below(annotation: Any, part: int | str) -> Iterator[Any]:
    """Yield the types at a key of a mapping or model, or at an index of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        if field is not None:
            yield field.annotation
    elif get_origin(annotation) is dict:
        yield get_args(annotation)[1]
    elif isinstance(part, int):
        yield from (item for item in get_args(annotation) if item is not ...)


ALL_FILES = ""
"""Key whose origin is all files together, for keys that none of them has."""

EXPECTED = {
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number > {gt}",
    "greater_than_equal": "a number >= {ge}",
    "int_type": "an integer",
    "less_than_equal": "a number <= {le}",
    "literal_error": "{expected}",
    "model_type": "a mapping",
    "string_too_short": "a string that is not empty",
    "string_type": "a string",
    "too_short": "at least {min_length} item{s}",
    "tuple_type": "a list",
    NO_MAPPING: "a mapping with a {key}",
}
PATTERNS = {
    FUNCTION: "module:name, such as my_models:price",
    EXPERIMENT: "letters, digits, '_', '-' and '.', the first one a letter or a digit",
    NAME: NAME_IN_WORDS,
    MODEL_NAME: "a model name without '/' and ':'",
}
MAX_SHOWN = 80
KEY = "[key]"
"""Marks a wrong key of a mapping in the ``loc`` of pydantic."""


def faults_of(error: ValidationError, model: type[BaseModel], origins: Mapping[str, Origin]) -> tuple[str, ...]:
    """Return a sentence for each fault, in the order of the fields."""
    details = error.errors(include_url=False)
    kinds = {kind.__name__: kind for kind in _models_below(model)}
    sentences = [
        _sentence(path, origins, what, is_missing=fault.details[0]["type"] == "missing")
        for fault in likely_faults(details, model, kinds)
        if fault.details[0]["type"] != "default_factory_not_called"  # follows from another fault
        for path, what in _faults_in(fault, model, kinds)
    ]
    return tuple(dict.fromkeys(sentences))


def _faults_in(
    fault: Fault, model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]
) -> Iterator[tuple[list[str], str]]:
    """Yield the path of each wrong key, and its fault."""
    path = [part for part in fault.path if part != KEY]
    [detail, *others] = fault.details
    if isinstance(cause := detail.get("ctx", {}).get("error"), KeyFaultsError):
        for key, what in cause.faults.items():
            yield [*path, *key.split(".")], what
    elif others:
        expected = dict.fromkeys(_expected(one) for one in fault.details)
        yield path, f"expected {', or '.join(expected)}, got {_shown(detail['input'])}{_near_any(fault.details)}"
    else:
        yield path, _what_is_wrong(detail, model, kinds)


def _sentence(path: list[str], origins: Mapping[str, Origin], what: str, *, is_missing: bool) -> str:
    where = [*_upwards(path), *([ALL_FILES] if is_missing else [])]
    origin = next((str(origins[key]) for key in where if key in origins), "")
    key = "" if origin == f"--{'-'.join(path).replace('_', '-')}" else ".".join(path)  # the option names the key
    return ": ".join(filter(None, (origin, key, what)))


def _what_is_wrong(detail: ErrorDetails, model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]) -> str:
    kind, value, facts = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        *above, key = detail["loc"]
        known = _model_at(above, model, kinds).model_fields
        return "unknown key" + (did_you_mean(str(key), known) or f"; known here: {', '.join(known)}")
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(facts["error"])
    if kind == "string_pattern_mismatch":
        return f"expected {PATTERNS[facts['pattern']]}, got {_shown(value)}"
    if kind not in EXPECTED:
        return f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, got {_shown(value)}"
    return f"expected {_expected(detail)}, got {_shown(value)}{_near(detail)}"


def _expected(detail: ErrorDetails) -> str:
    facts = detail.get("ctx", {})
    return EXPECTED[detail["type"]].format(**facts, s="" if facts.get("min_length") == 1 else "s")


def _near(detail: ErrorDetails) -> str:
    if detail["type"] != "literal_error":
        return ""
    return did_you_mean(str(detail["input"]), detail["ctx"]["expected"].split("'")[1::2])


def _near_any(details: Iterable[ErrorDetails]) -> str:
    return next(filter(None, map(_near, details)), "")


def _model_at(path: list[int | str], model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]) -> type[BaseModel]:
    for part in path:
        if part in kinds:
            model = kinds[str(part)]
        elif str(part) in model.model_fields:  # else it is a key of a mapping
            below = model.model_fields[str(part)].annotation
            below = get_args(below)[1] if get_origin(below) is dict else below
            alternatives = (below, *get_args(below))  # one of them, if it may be null
            found = [kind for kind in alternatives if isinstance(kind, type) and issubclass(kind, BaseModel)]
            model = found[0] if len(found) == 1 else model
    return model


def _models_below(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models_below(field.annotation)
    else:
        for argument in get_args(annotation):
            yield from _models_below(argument)


def _upwards(path: list[str]) -> Iterator[str]:
    for length in range(len(path), 0, -1):
        yield ".".join(path[:length])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


P = TypeVar("P", bound=BaseModel)


def parse_as(model: type[P], values: Mapping[str, Any], origins: Mapping[str, Origin]) -> P:
    """Check settings, and return them as parameters of the type `model`.

    Raises ConfigError with a sentence for every fault: file and line, key, expected and actual value.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(faults_of(error, model, origins)) from None
