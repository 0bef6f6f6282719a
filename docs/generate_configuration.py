"""Write ``docs/configuration.md`` from the parameters of the flows: ``python docs/generate_configuration.py``."""

from __future__ import annotations

import json
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from psflow.flows.parameters.base import NamesCode
from psflow.flows.parameters.kinds import KindParameters
from psflow.flows.parameters.model import CannedModel
from psflow.flows.parameters.stages import EvaluateParameters, ExportParameters, PredictParameters, Sections
from psflow.flows.parameters.train import TrainParameters

TARGET = Path(__file__).with_name("configuration.md")

HEAD = """\
# Configuration

Written by `python docs/generate_configuration.py` from the parameters of the flows; a test holds it to them.

`psflow train` takes one or more YAML files and any number of `key=value` overrides with dotted keys, such as
`train.max_steps=3000`. Of two files the later wins, key by key. An override wins over files; it replaces a whole
mapping. `psflow predict` takes overrides of its own keys. YAML is read as YAML 1.2: `1e-3` is a number, `no` a string.
On the command line the value of a key that is a string is taken as it stands, without YAML and its quotes:
`schedule.cron=*/2 * * * *`, `model_dir={scheduled_time}`. Where such a key may be null or a list, `null` is null and
`[a.csv, b.csv]` a list.

No key is ignored, and no value is turned into another type: `max_steps: "3000"` is an error. All errors of a
configuration come at once, each with the file and line, what was expected, what came, and the nearest known name.
"""

TRAIN = "## `psflow train`"
SECTIONS = """\
## Sections of other commands

The same file may have sections that training ignores: the stages of `psflow pipeline`, and the schedule of
`psflow serve`. Every command checks them."""
EVALUATE = """\
## `psflow evaluate`

All but `cluster` are options, files and overrides of the command; in a form of Prefect they are keys. Other overrides
change the configuration of the training."""
EXPORT = "## `psflow export`\n\nOptions, files and overrides of the command; in a form of Prefect they are keys."
PREDICT = "## `psflow predict`\n\n`model`, `input` and `output` are the options `--model`, `--input` and `--output`."


def configuration() -> str:
    """Return the text of the page."""
    sections = [HEAD, TRAIN, *_tables(TrainParameters, ""), SECTIONS, *_tables(Sections, "")]
    sections += [EVALUATE, *_tables(EvaluateParameters, ""), EXPORT, *_tables(ExportParameters, "")]
    sections += [PREDICT, *_tables(PredictParameters, "")]
    return "\n".join(f"{section.rstrip()}\n" for section in sections)


def _tables(model: type[BaseModel], prefix: str, shown: dict[type[BaseModel], str] | None = None) -> Iterator[str]:
    """Yield the table of a mapping, then those of the mappings below it; of one that is `shown` already, where.

    A mapping that has one key in several formats is shown below the first of them.
    """
    shown = {} if shown is None else shown
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    below: dict[str, list[type[BaseModel]]] = {}
    for name, field in model.model_fields.items():
        meaning = str(field.description).replace("<", "\\<")
        rows.append(f"| `{prefix}{name}` | {_type(field)} | {_default(field)} | {meaning} |")
        key = f"{prefix}{name}.<name>" if get_origin(field.annotation) is dict else f"{prefix}{name}"
        below[key] = _models_in(field.annotation)
    yield "\n".join(rows)
    for key, kinds in below.items():
        if kinds and kinds[0] in shown:
            if shown[kinds[0]] != key:
                yield f"### `{key}`\n\nAs `{shown[kinds[0]]}`."
            continue
        for kind in kinds:
            shown[kind] = key
            yield f"### `{key}`{_alternative(kind)}"
            yield from _tables(kind, f"{key}.", shown)


def _alternative(kind: type[BaseModel]) -> str:
    """Say which of several mappings a value may be, and how to tell them apart."""
    choosing = [name for name in ("name", "format") if name in kind.model_fields]
    if not choosing or not issubclass(kind, KindParameters | CannedModel | NamesCode):
        return ""
    summary = str(kind.__doc__).partition("\n")[0].rstrip(".").replace("``", "`")
    name = kind.model_fields[choosing[0]].annotation
    chosen = f"`{choosing[0]}: {get_args(name)[0]}`: " if get_origin(name) is Literal else ""
    return f" as {chosen}{summary[:1].lower() if not chosen else summary[:1]}{summary[1:]}"


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for argument in get_args(annotation) for kind in _models_in(argument)]


SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
NAMES = {bool: "true or false", int: "integer", float: "number", str: "string", type(None): "null"}


def _type(field: FieldInfo) -> str:
    found = {name: getattr(bound, name) for bound in field.metadata for name in SIGNS if hasattr(bound, name)}
    text = _type_of(_shown_type(field.annotation, field.metadata))
    if not found:
        return text
    number, *others = text.split(" or ")
    bounds = " and ".join(f"{SIGNS[name]} {value}" for name, value in found.items())
    return " or ".join([f"{number} {bounds}", *others])


def _shown_type(annotation: Any, metadata: Iterable[Any]) -> Any:
    """Return the type that forms show."""
    given = [m.json_schema_input_type for m in metadata if isinstance(m, BeforeValidator)]
    return next((kind for kind in given if kind is not PydanticUndefined), annotation)


def _type_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_of(_shown_type(arguments[0], arguments[1:]))
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type_of(argument) for argument in arguments))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        items = _type_of(arguments[0]).split(" or ")
        return "list of " + " or ".join(item if item.startswith("`") else f"{item}s" for item in items)
    if origin is dict or _models_in(annotation):
        return "mapping"
    return NAMES[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, BaseModel):
        return _shown(field.default) if _has_no_defaults(type(field.default)) else "see below"
    if field.default is PydanticUndefined:
        return "empty" if field.default_factory is dict else "see meaning"
    return _shown(field.default)


def _has_no_defaults(kind: type[BaseModel]) -> bool:
    """Return whether a default says something that the defaults of the keys below do not."""
    return any(f.is_required() for f in kind.model_fields.values())


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        return ", ".join(f"`{key}: {inner}`" for key, inner in value.model_dump(exclude_unset=True).items())
    if value in ((), {}):
        return "empty"
    if isinstance(value, tuple) or value == "\t":
        return f"`{json.dumps(value)}`"
    words = {None: "null", True: "true", False: "false"}
    return f"`{words[value] if value is None or isinstance(value, bool) else value}`"


if __name__ == "__main__":
    TARGET.write_text(configuration())
