"""``model_dir/config.yaml``: the whole configuration of a job, which resumes it from any working directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from psflow.flows.parameters.faults import ALL_FILES
from psflow.flows.parameters.train import ResumeParameters, TrainParameters, parse_parameters
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.config.files import Origin, dump, parse
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.redaction import without_secrets
from psflow.ps_runtime.specs.directories import absolute

__all__ = ["CONFIG", "has_config", "read_config", "resolve", "write_config"]

CONFIG = "config.yaml"
HEAD = "# Written by psflow: the whole configuration of this job. It is a configuration file like any other.\n"


def resolve(parameters: TrainParameters, seed: int | None = None) -> TrainParameters:
    """Return parameters that mean the same from any working directory and at any later start."""
    values = parameters.model_dump(mode="json")
    values |= {
        "seed": seed if parameters.seed is None else parameters.seed,
        "warm_start": _anchored_start(values["warm_start"]),
        "model_dir": absolute(parameters.model_dir),
        "code_dir": None if parameters.code_dir is None else _absolute(parameters.code_dir),
        "input": _anchored(values["input"]),
        "evals": _anchored(values["evals"]),
        "resume": ResumeParameters().model_dump(mode="json"),
    }
    return TrainParameters.model_validate(values)


def write_config(model_dir: str, parameters: TrainParameters) -> None:
    """Write `parameters` as the configuration of the job in `model_dir`; readers see the old file or all of the new.

    It holds what it was given, credentials in the URLs of inputs included: without them nobody could resume. So the
    owner alone can read it.
    """
    values = parameters.model_dump(mode="json", exclude={"resume"})
    FileStore(model_dir).put(CONFIG, (HEAD + dump(values)).encode(), is_private=True)


def has_config(model_dir: str) -> bool:
    """Return whether `model_dir` has a configuration."""
    return FileStore(model_dir).size(CONFIG) is not None


def read_config(model_dir: str) -> TrainParameters:
    """Return the configuration of the job in `model_dir`.

    Its ``model_dir`` is the one that was asked for: a directory that was moved is found where it is.

    Raises
    ------
    ConfigError
        If there is none, or it is damaged.
    """
    files = FileStore(model_dir)
    where = without_secrets(files.path(CONFIG))
    if files.size(CONFIG) is None:
        raise ConfigError(
            (f"{where}: there is no such file, expected the configuration of a training; name its model_dir",)
        )
    try:
        text = files.read(CONFIG).decode()
    except UnicodeDecodeError as error:
        raise ConfigError((f"{where}: expected UTF-8 text, got the byte {error.object[error.start]:#04x}",)) from None
    settings = parse(text, where)
    if not settings.values:
        raise ConfigError((f"{where} is empty; remove it, and start with the configuration file of that training",))
    parameters = parse_parameters(settings.values, {ALL_FILES: Origin(where), **settings.origins})
    return parameters.model_copy(update={"model_dir": absolute(model_dir)})


def _anchored(value: Any) -> Any:
    """Return `value` with an absolute path in each data set below it that is a local file."""
    if not isinstance(value, Mapping):
        return value
    anchored = {key: _anchored(inner) for key, inner in value.items()}
    if "format" in value:
        is_path = {key: key == "path" or key.endswith("_path") for key in value}
        anchored |= {key: _absolute(path) for key, path in value.items() if is_path[key]}
    return anchored


def _anchored_start(warm_start: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return None if warm_start is None else {**warm_start, "checkpoint": _absolute(warm_start["checkpoint"])}


def _absolute(path: Any) -> Any:
    """Return a path, or each one of a list, as an absolute one; what is none is left to those who check it."""
    if isinstance(path, list | tuple):
        return [_absolute(each) for each in path]
    if not isinstance(path, str):
        return path
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))
