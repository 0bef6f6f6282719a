"""Reads settings from files, overrides and flags; ``model_dir/config.yaml`` resumes a job from any directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Field

from psflow.flows.parameters.parsing import ALL_FILES, parse_as
from psflow.flows.parameters.stages import EvaluateParameters, ExportParameters, Sections, StagesParameters
from psflow.flows.parameters.train import ResumeParameters, TrainParameters, parse_parameters
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import NAME
from psflow.ps_runtime.config.files import Origin, Settings, dump, is_override, load, parse
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.redaction import without_secrets
from psflow.ps_runtime.specs.run_config import absolute, is_local

NULLS = ("null", "~")


def text_keys(*models: type[BaseModel]) -> Callable[[str, str], bool]:
    """Return a function that tells whether the value of a dotted key is a plain string rather than YAML.

    Notes
    -----
    For a key that may also be null or a list, ``null`` and values that start with ``[`` are YAML, as are values of keys
    that no model has.
    """

    def is_text(key: str, value: str) -> bool:
        kinds = {kind for model in models for kind in _kinds_at(model, key.split("."))}
        if str not in kinds or not kinds <= {str, tuple, type(None)}:
            return False
        is_null = type(None) in kinds and value.strip() in (*NULLS, "")
        return not is_null and not (tuple in kinds and value.lstrip().startswith("["))

    return is_text


def _kinds_at(annotation: Any, path: list[str]) -> Iterator[Any]:
    """Yield the plain types of a value at `path`, over all alternatives that have such a key."""
    for kind in _members(annotation):
        if not path:
            yield get_origin(kind) or kind
        elif get_origin(kind) is dict:
            yield from _kinds_at(get_args(kind)[1], path[1:])
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and path[0] in kind.model_fields:
            yield from _kinds_at(kind.model_fields[path[0]].annotation, path[1:])


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the alternatives of a type, without annotations."""
    if get_origin(annotation) is Annotated:
        yield from _members(get_args(annotation)[0])
    elif isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


CONFIG = "config.yaml"
HEAD = "# Written by psflow: the whole configuration of this job. It is a configuration file like any other.\n"


def resolve(parameters: TrainParameters, seed: int | None = None) -> TrainParameters:
    """Return parameters that are independent of working directory and time of the start."""
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
    """Write `parameters` atomically as the configuration of the job in `model_dir`.

    The file keeps credentials in the URLs of inputs, which a resumed job needs. So only the owner can read it.
    """
    values = parameters.model_dump(mode="json", exclude={"resume"})
    FileStore(model_dir).put(CONFIG, (HEAD + dump(values)).encode(), is_private=True)


def has_config(model_dir: str) -> bool:
    """Return whether `model_dir` has a configuration."""
    return FileStore(model_dir).size(CONFIG) is not None


def read_config(model_dir: str) -> TrainParameters:
    """Return the configuration of the job in `model_dir`.

    Its ``model_dir`` is the requested one, so that a moved directory works.

    Raises ConfigError if it is missing or damaged.
    """
    files = FileStore(model_dir)
    where = without_secrets(files.location(CONFIG))
    settings = _read_file(files, CONFIG)
    if not settings.values:
        raise ConfigError((f"{where} is empty; remove it, and start with the configuration file of that training",))
    parameters = parse_parameters(settings.values, {ALL_FILES: Origin(where), **settings.origins})
    return parameters.model_copy(update={"model_dir": absolute(model_dir)})


def _read_file(files: FileStore, name: str) -> Settings:
    """Return the settings of a file; ConfigError if it is missing or damaged."""
    where = without_secrets(files.location(name))
    try:
        text = files.read(name).decode()
    except FileNotFoundError:
        raise ConfigError(
            (f"{where}: there is no such file, expected the configuration of a training; name its model_dir",)
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError((f"{where}: expected UTF-8 text, got the byte {error.object[error.start]:#04x}",)) from None
    return parse(text, where)


def _anchored(value: Any) -> Any:
    """Return `value` with absolute paths of all data sets in it that are local files."""
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
    """Return an absolute path, or a list of them; values of other types are returned unchanged, for validation."""
    if isinstance(path, list | tuple):
        return [_absolute(each) for each in path]
    if not isinstance(path, str):
        return path
    return path if "://" in path else os.path.abspath(os.path.expanduser(path))


is_conf_text = text_keys(TrainParameters, Sections)
"""Maps key and value of an override to whether the value is a plain string."""


Flags = Mapping[str, tuple[str, Any]]
"""For each given flag, such as ``--fork``: the dotted key that it sets, and the value."""


@dataclass(frozen=True, slots=True)
class Conf:
    """Settings in the arguments of a command."""

    settings: Settings
    sections: Sections


def read_conf(arguments: Sequence[str], flags: Flags | None = None) -> Conf:
    """Read configuration files, paths or URLs, and overrides; later ones win, and flags win over all.

    The ``config.yaml`` of a job describes its current directory, also after a move.

    Raises
    ------
    ConfigError
        If a file or an override cannot be read, all of them are empty, or a section is wrong.
    UsageError
        If there is no file.
    """
    files = [text for text in arguments if not is_override(text)]
    if not files:
        raise UsageError(("expected at least one configuration file, such as conf/digits.yaml",))
    directory = None if "://" in files[0] else os.path.dirname(os.path.abspath(files[0]))
    settings = Settings({"code_dir": directory}, {"code_dir": Origin(f"directory of {files[0]}")})
    loaded = _loaded(files).overridden([text for text in arguments if is_override(text)], is_text=is_conf_text)
    if not loaded.values:
        raise ConfigError(tuple(f"{file}: is empty; expected a configuration" for file in files))
    settings = settings.merged(Settings({}, {ALL_FILES: Origin(", ".join(files))})).merged(_placed(loaded))
    for flag, (key, value) in (flags or {}).items():
        settings = settings.merged(_at(key, value, Origin(flag)))
    own = {key: value for key, value in settings.values.items() if key in Sections.model_fields}
    sections = parse_as(Sections, own, settings.origins)
    rest = {key: value for key, value in settings.values.items() if key not in own}
    return Conf(Settings(rest, settings.origins), sections)


def _loaded(files: Sequence[str]) -> Settings:
    loaded = Settings()
    for file in files:
        directory, _, name = file.rpartition("/")
        loaded = loaded.merged(_read_file(FileStore(directory), name) if "://" in file else load([file]))
    return loaded


def read_settings(arguments: Sequence[str], flags: Flags | None = None) -> Settings:
    """Return the settings of `read_conf` for training."""
    return read_conf(arguments, flags).settings


def source_settings(arguments: Sequence[str], options: Mapping[str, Any]) -> Settings:
    """Return the settings of a command that works on checkpoints.

    Raises ConfigError if an override is malformed.
    """
    overrides = [text for text in arguments if is_override(text)]
    load([], overrides, is_conf_text)  # reports every fault before anything is searched
    of_the_cluster = [text for text in overrides if text.startswith("cluster.")]
    values = {key: value for key, value in options.items() if value is not None} | {
        "conf": [text for text in arguments if not is_override(text)],
        "overrides": [text for text in overrides if text not in of_the_cluster],
    }
    origins = {key: Origin(f"--{key.replace('_', '-')}") for key in options if key in values}
    return load([], of_the_cluster, is_conf_text).merged(Settings(values, origins))


def _placed(settings: Settings) -> Settings:
    """Return `settings` with the directory of ``config.yaml`` as model_dir: it may have been moved."""
    origin = settings.origin("model_dir")
    source = "" if origin is None else origin.source
    directory, _, name = (source if "://" in source else os.path.abspath(source)).rpartition("/")
    if origin is None or name != CONFIG or FileStore(directory).size(NAME) is None:
        return settings
    if _real(directory) == _real(str(settings.values["model_dir"])):
        return settings
    return settings.merged(_at("model_dir", directory, Origin(f"directory of {origin.source}")))


def _real(directory: str) -> str:
    return os.path.realpath(directory) if is_local(directory) else FileStore(directory).root


def _at(key: str, value: Any, origin: Origin) -> Settings:
    """Return settings in which the dotted `key` has `value`."""
    above, _, name = key.rpartition(".")
    values: Any = {name: value}
    for part in reversed(above.split(".") if above else []):
        values = {part: values}
    return Settings(values, {key: origin})


class PipelineParameters(TrainParameters):
    """The parameters of a pipeline."""

    pipeline: StagesParameters = Field(StagesParameters(), description="Stages to run, one after the other.")

    @property
    def directory(self) -> str:
        """Directory of the training: the model_dir or that of the fork, as an absolute path."""
        return absolute(self.resume.fork or self.model_dir)

    def training(self) -> TrainParameters:
        """Return the parameters of the first stage."""
        return TrainParameters.model_validate(self.model_dump(mode="json", exclude={"pipeline"}))

    def evaluation(self) -> EvaluateParameters:
        """Return the parameters of the stage evaluate."""
        stage = self.pipeline.evaluate.model_dump(mode="json")
        settings = {"model_dir": self.directory, "cluster": {"address": self.cluster.address}}
        return EvaluateParameters.model_validate(stage | settings)

    def export(self) -> ExportParameters:
        """Return the parameters of the stage export."""
        stage = self.pipeline.export
        settings = {"model_dir": self.directory, "takes_alias": stage.metric is not None}
        return ExportParameters.model_validate(stage.model_dump(mode="json") | settings)


def pipeline_parameters(conf: Conf) -> PipelineParameters:
    """Return the parameters of a pipeline; ConfigError if a key is wrong."""
    values = {**conf.settings.values, "pipeline": conf.sections.pipeline.model_dump(mode="json")}
    return parse_as(PipelineParameters, values, conf.settings.origins)
