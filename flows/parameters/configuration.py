"""From the arguments of a command to settings: files, overrides, flags, and where the user's modules are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psflow.flows.parameters.faults import ALL_FILES
from psflow.flows.parameters.parsing import parse_as
from psflow.flows.parameters.resolved_config import CONFIG
from psflow.flows.parameters.stages import Sections
from psflow.flows.parameters.text_keys import text_keys
from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.config.files import Origin, Settings, is_override, load
from psflow.ps_runtime.errors import ConfigError, UsageError

__all__ = ["Conf", "is_conf_text", "read_conf", "read_settings", "source_settings"]

is_conf_text = text_keys(TrainParameters, Sections)
"""Takes the key and the value of an override of a configuration; returns whether it is a string as it stands."""


Flags = Mapping[str, tuple[str, Any]]
"""Of each flag that was given, such as ``--fork``, the dotted key that it sets, and the value."""


@dataclass(frozen=True, slots=True)
class Conf:
    """What the arguments of a command say."""

    settings: Settings
    sections: Sections


def read_conf(arguments: Sequence[str], flags: Flags | None = None) -> Conf:
    """Read configuration files and overrides; later ones win, flags over all.

    The ``config.yaml`` of a job is one of the directory where it is now, wherever it was written.

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
    directory = os.path.dirname(os.path.abspath(files[0]))
    settings = Settings({"code_dir": directory}, {"code_dir": Origin(f"directory of {files[0]}")})
    loaded = load(files, [text for text in arguments if is_override(text)], is_conf_text)
    if not loaded.values:
        raise ConfigError(tuple(f"{file}: is empty; expected a configuration" for file in files))
    settings = settings.merged(Settings({}, {ALL_FILES: Origin(", ".join(files))})).merged(_placed(loaded))
    for flag, (key, value) in (flags or {}).items():
        settings = settings.merged(_at(key, value, Origin(flag)))
    own = {key: value for key, value in settings.values.items() if key in Sections.model_fields}
    sections = parse_as(Sections, own, settings.origins)
    rest = {key: value for key, value in settings.values.items() if key not in own}
    return Conf(Settings(rest, settings.origins), sections)


def read_settings(arguments: Sequence[str], flags: Flags | None = None) -> Settings:
    """Return what `read_conf` says to training."""
    return read_conf(arguments, flags).settings


def source_settings(arguments: Sequence[str], options: Mapping[str, Any]) -> Settings:
    """Return the settings of a command that works on checkpoints.

    Raises
    ------
    ConfigError
        If an override is malformed.
    """
    overrides = [text for text in arguments if is_override(text)]
    load([], overrides, is_conf_text)  # reports every fault before anything is looked for
    of_the_cluster = [text for text in overrides if text.startswith("cluster.")]
    values = {key: value for key, value in options.items() if value is not None} | {
        "conf": [text for text in arguments if not is_override(text)],
        "overrides": [text for text in overrides if text not in of_the_cluster],
    }
    origins = {key: Origin(f"--{key.replace('_', '-')}") for key in options if key in values}
    return load([], of_the_cluster, is_conf_text).merged(Settings(values, origins))


def _placed(settings: Settings) -> Settings:
    """Return `settings` with the directory of the job whose ``config.yaml`` says model_dir: it may have been moved."""
    origin = settings.origin("model_dir")
    directory, name = os.path.split(os.path.abspath("" if origin is None else origin.source))
    if origin is None or name != CONFIG or not os.path.isfile(os.path.join(directory, "job.json")):
        return settings
    if os.path.realpath(directory) == os.path.realpath(str(settings.values["model_dir"])):
        return settings
    return settings.merged(_at("model_dir", directory, Origin(f"directory of {origin.source}")))


def _at(key: str, value: Any, origin: Origin) -> Settings:
    """Return settings in which the dotted `key` has `value`."""
    above, _, name = key.rpartition(".")
    values: Any = {name: value}
    for part in reversed(above.split(".") if above else []):
        values = {part: values}
    return Settings(values, {key: origin})
