"""What pydantic found wrong, as sentences for the one who wrote the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from psflow.flows.parameters.alternatives import Fault, likely_faults
from psflow.flows.parameters.base import EXPERIMENT, FUNCTION, MODEL_NAME, KeyFaultsError
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.specs.arguments import NAME, NAME_IN_WORDS

__all__ = ["ALL_FILES", "faults_of"]

ALL_FILES = ""
"""The key whose origin is every file together: there a key is missed that none of them has."""

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
    "union_tag_not_found": "a mapping",
}
PATTERNS = {
    FUNCTION: "module:name, such as my_models:price",
    EXPERIMENT: "letters, digits, '_', '-' and '.', the first one a letter or a digit",
    NAME: NAME_IN_WORDS,
    MODEL_NAME: "a name of a model, which has no '/' and no ':'",
}
MAX_SHOWN = 80
KEY = "[key]"
"""Where pydantic has found the key of a mapping wrong."""


def faults_of(error: ValidationError, model: type[BaseModel], origins: Mapping[str, Origin]) -> tuple[str, ...]:
    """Return a sentence for each fault, in the order of the fields."""
    details = error.errors(include_url=False)
    kinds = {kind.__name__: kind for kind in _models_below(model)}
    told = [
        _sentence(path, origins, what, is_missing=fault.details[0]["type"] == "missing")
        for fault in likely_faults(details, model, kinds)
        if fault.details[0]["type"] != "default_factory_not_called"  # follows
        for path, what in _faults_in(fault, model, kinds)
    ]
    return tuple(dict.fromkeys(told))


def _faults_in(
    fault: Fault, model: type[BaseModel], kinds: Mapping[str, type[BaseModel]]
) -> Iterator[tuple[list[str], str]]:
    """Yield the path of each key that is at fault, and what is wrong with it."""
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
    key = "" if origin == f"--{'-'.join(path).replace('_', '-')}" else ".".join(path)  # the option has its name
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
            alternatives = (below, *get_args(below))  # one of them, where it may be null
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
