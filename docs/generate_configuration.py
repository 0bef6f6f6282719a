"""Write ``docs/configuration.md`` from the parameters of the flows: ``python docs/generate_configuration.py``."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from psflow.flows.parameters.consistency import (
    AsyncParameters,
    BoundedStalenessParameters,
    HogwildParameters,
    SyncParameters,
)
from psflow.flows.parameters.evaluate import EvaluateParameters
from psflow.flows.parameters.export import ExportParameters
from psflow.flows.parameters.input import DataInput, FunctionInput
from psflow.flows.parameters.model import CannedModel, FunctionModel
from psflow.flows.parameters.predict import PredictParameters
from psflow.flows.parameters.stages import Sections
from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.optimizers import OPTIMIZERS

TARGET = Path(__file__).with_name("configuration.md")

ALTERNATIVES: dict[type[BaseModel], str] = {
    CannedModel: "a canned model",
    FunctionModel: "a model_fn of your own: a `name` with a colon",
    DataInput: "a data set: a `format`",
    FunctionInput: "an input_fn of your own: a `name`",
    AsyncParameters: "`async`: every push is applied at once; the fastest, and the stalest",
    BoundedStalenessParameters: "`bounded_staleness`: as async, but a replica that is too far ahead waits",
    SyncParameters: "`sync`: the mean of several gradients of one step is one update",
    HogwildParameters: "`hogwild`: as async, but replicas on the host of a ps read its memory while it is written",
}
"""Which of several mappings a value may be, and how they are told apart."""

HEAD = """\
# Configuration

Written by `python docs/generate_configuration.py` from the parameters of the flows; a test holds it to them.

`psflow train` takes one or more YAML files and any number of `key=value` overrides with dotted keys, such as
`train.max_steps=3000`. Of two files the later wins, key by key. An override wins over files; it replaces a whole
mapping. `psflow predict` takes overrides of its own keys. YAML is read as YAML 1.2: `1e-3` is a number, `no` a string.

No key is ignored, and no value is turned into another type: `max_steps: "3000"` is an error. All errors of a
configuration come at once, each with the file and line, what was expected, what came, and the nearest known name.
"""

TRAIN = "## `psflow train`"
SECTIONS = """\
## Sections of others

The same file may say more, which training does not look at: what `psflow pipeline` does, and when `psflow serve` starts
it. Every command checks it."""
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


def _tables(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield the table of a mapping, then those of the mappings below it."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    below = []
    for name, field in model.model_fields.items():
        kinds = _models_in(field.annotation)
        meaning = str(field.description).replace("<", "\\<")
        rows.append(f"| `{prefix}{name}` | {_type(field)} | {_default(field)} | {meaning} |")
        key = f"{prefix}{name}.<name>" if get_origin(field.annotation) is dict else f"{prefix}{name}"
        below += [(kind, f"{key}.", f"`{key}`") for kind in kinds]
    yield "\n".join(rows)
    for kind, deeper, key in below:
        yield f"### {key}{f' as {ALTERNATIVES[kind]}' if kind in ALTERNATIVES else ''}"
        yield from _tables(kind, deeper)
        if kind.model_config.get("extra") == "allow":
            yield _hyper_parameters()


def _hyper_parameters() -> str:
    lines = ["Further keys are the hyper-parameters of the optimizer; those with a default may be left out:\n"]
    for name, rule in OPTIMIZERS.items():
        known = [f"`{f.name}`{'' if f.default is MISSING else f' ({f.default})'}" for f in fields(rule)]
        lines.append(f"- {name}: {', '.join(known)}")
    return "\n".join(lines)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for argument in get_args(annotation) for kind in _models_in(argument)]


SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
NAMES = {bool: "true or false", int: "integer", float: "number", str: "string", type(None): "null"}


def _type(field: FieldInfo) -> str:
    found = {name: getattr(bound, name) for bound in field.metadata for name in SIGNS if hasattr(bound, name)}
    [annotation] = [m.json_schema_input_type for m in field.metadata if isinstance(m, BeforeValidator)] or [
        field.annotation
    ]
    text = _type_of(annotation)
    if not found:
        return text
    number, *others = text.split(" or ")
    bounds = " and ".join(f"{SIGNS[name]} {value}" for name, value in found.items())
    return " or ".join([f"{number} {bounds}", *others])


def _type_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_of(arguments[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_type_of(argument) for argument in arguments))
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type_of(arguments[0])}s"
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
    if value == ():
        return "empty"
    words = {None: "null", True: "true", False: "false"}
    return f"`{words[value] if value is None or isinstance(value, bool) else value}`"


if __name__ == "__main__":
    TARGET.write_text(configuration())
