"""From the arguments of a command to settings: files, overrides, flags, and where the user's modules are."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ps_runtime.config.files import Origin, Settings, is_override, load
from ps_runtime.errors import UsageError

__all__ = ["read_settings"]


def read_settings(arguments: Sequence[str], flags: Mapping[str, tuple[str, Any]] | None = None) -> Settings:
    """Read configuration files and overrides; later ones win, flags over all.

    Parameters
    ----------
    arguments : sequence of str
        Paths and ``key=value``.
    flags : mapping of str to (str, object), optional
        Of each flag that was given, such as ``--fork``, the dotted key that it sets, and the value.

    Returns
    -------
    Settings
        With ``code_dir``, the directory of the first file, if nothing else names one.

    Raises
    ------
    ConfigError
        If a file or an override cannot be read.
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
    return settings


def _at(key: str, value: Any, origin: Origin) -> Settings:
    """Return settings in which the dotted `key` has `value`."""
    above, _, name = key.rpartition(".")
    values: Any = {name: value}
    for part in reversed(above.split(".") if above else []):
        values = {part: values}
    return Settings(values, {key: origin})
