"""Files that a program has its exports carry beside the model, below ``assets.extra``."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["FOLDER", "check_assets", "copy_assets", "find_assets"]

FOLDER = "assets.extra"


def check_assets(faults: ArgumentFaults, assets_extra: Any) -> None:
    """Add what is wrong with ``assets_extra``, a mapping of names below `FOLDER` to paths of files, to `faults`."""
    if assets_extra is None:
        return
    if not isinstance(assets_extra, Mapping):
        faults.add_type("assets_extra", "a mapping of names to paths of files, or None", assets_extra)
        return
    for name, path in assets_extra.items():
        if not isinstance(name, str):
            faults.add_type("a name of assets_extra", "a str", name)
        elif not _is_below(name):
            faults.add(f"assets_extra[{name!r}]: expected a name below {FOLDER}, such as 'vocabularies/words.txt'")
        if not isinstance(path, str | os.PathLike):
            faults.add_type(f"assets_extra[{name!r}]", "the path of a file", path)
    for (one, place), (other, below) in itertools.permutations(_places(assets_extra), 2):
        if place in below.parents or (place == below and one < other):
            faults.add(f"assets_extra[{one!r}] and [{other!r}] would stand in one place: give each a name of its own")


def find_assets(assets_extra: Mapping[str, Any] | None) -> dict[str, Path]:
    """Return the files of ``assets_extra`` by their names; UsageError, with all faults, if one is not there."""
    files = {name: Path(path) for name, path in (assets_extra or {}).items()}
    missing = [f"assets_extra[{name!r}]: there is no file {path}" for name, path in files.items() if not path.is_file()]
    if missing:
        raise UsageError(tuple(missing))
    return files


def copy_assets(files: Mapping[str, Path], export: str) -> None:
    """Copy files into the folder of an export."""
    for name, path in files.items():
        target = Path(export, FOLDER, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _places(assets_extra: Mapping[Any, Any]) -> list[tuple[str, PurePosixPath]]:
    return [(name, PurePosixPath(name)) for name in assets_extra if isinstance(name, str)]


def _is_below(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name
