"""From the arguments of a command to settings: files, overrides, flags, and where the user's modules are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.parameters.parsing import parse_as
from flows.parameters.stages import Sections
from ps_runtime.config.files import Origin, Settings, is_override, load
from ps_runtime.errors import UsageError

__all__ = ["Conf", "read_conf", "read_settings"]


Flags = Mapping[str, tuple[str, Any]]
"""Of each flag that was given, such as ``--fork``, the dotted key that it sets, and the value."""


@dataclass(frozen=True, slots=True)
class Conf:
    """What the arguments of a command say.

    Parameters
    ----------
    settings : Settings
        What training is told; with ``code_dir``, the directory of the first file, if nothing else names one.
    sections : Sections
        What is told to others, checked.
    """

    settings: Settings
    sections: Sections


def read_conf(arguments: Sequence[str], flags: Flags | None = None) -> Conf:
    """Read configuration files and overrides; later ones win, flags over all.

    Parameters
    ----------
    arguments : sequence of str
        Paths and ``key=value``.
    flags : mapping, optional

    Raises
    ------
    ConfigError
        If a file or an override cannot be read, or a section is wrong.
    UsageError
        If there is no file.
    """
    files = [text for text in arguments if not is_override(text)]
    if not files:
        raise UsageError(("expected at least one configuration file, such as conf/digits.yaml",))
    directory = os.path.dirname(os.path.abspath(files[0]))
    settings = Settings({"code_dir": directory}, {"code_dir": Origin(f"directory of {files[0]}")})
    settings = settings.merged(load(files, [text for text in arguments if is_override(text)]))
    for flag, (key, value) in (flags or {}).items():
        settings = settings.merged(_at(key, value, Origin(flag)))
    own = {key: value for key, value in settings.values.items() if key in Sections.model_fields}
    sections = parse_as(Sections, own, settings.origins)
    rest = {key: value for key, value in settings.values.items() if key not in own}
    return Conf(Settings(rest, settings.origins), sections)


def read_settings(arguments: Sequence[str], flags: Flags | None = None) -> Settings:
    """Return what `read_conf` says to training."""
    return read_conf(arguments, flags).settings


def _at(key: str, value: Any, origin: Origin) -> Settings:
    """Return settings in which the dotted `key` has `value`."""
    above, _, name = key.rpartition(".")
    values: Any = {name: value}
    for part in reversed(above.split(".") if above else []):
        values = {part: values}
    return Settings(values, {key: origin})
