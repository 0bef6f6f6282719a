"""Which files are of installed libraries, and which are the user's own."""

from __future__ import annotations

import csv
import functools
import importlib.machinery
import itertools
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

__all__ = ["is_installed"]

LIBRARY_FOLDERS = ("site-packages", "dist-packages")
MODULES = tuple(importlib.machinery.all_suffixes())


def is_installed(path: Path) -> bool:
    """Return whether `path` is of the standard library, or of what pip or the system has installed.

    A checkout that is installed as editable is the user's own: its files lie elsewhere.
    """
    roots = _roots(tuple(sys.path))
    return f"{path}{os.sep}".startswith(roots) or f"{path.resolve()}{os.sep}".startswith(roots)


@functools.lru_cache(maxsize=8)
def _roots(path: tuple[str, ...]) -> tuple[str, ...]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    named = [sysconfig.get_path(kind) for kind in kinds]
    # libraries of another environment: --system-site-packages, PYTHONPATH, a .pth file
    of_path = [entry for entry in path if Path(entry).name in LIBRARY_FOLDERS]
    roots = (*named, *site.getsitepackages(), site.getusersitepackages(), *of_path)
    found = tuple(dict.fromkeys(f"{Path(root).resolve()}{os.sep}" for root in roots))
    folders = (Path(entry).resolve() for entry in path)
    others = (folder for folder in folders if not f"{folder}{os.sep}".startswith(found))
    return (*found, *itertools.chain.from_iterable(map(_of_target, others)))


def _of_target(folder: Path) -> Iterator[str]:
    """Yield what ``pip install --target`` has put into a folder, where files of the user may be as well.

    A package is yielded whole. Of a namespace, which anybody may add to, it is the modules that the record names.
    """
    for record in folder.glob("*.dist-info/RECORD"):  # an .egg-info is of a checkout
        with suppress(OSError):
            yield from (f"{folder / name}{os.sep}" for name in _of_record(record))


def _of_record(record: Path) -> set[PurePosixPath]:
    rows = csv.reader(record.read_text("utf-8", "surrogateescape").splitlines())
    files = [PurePosixPath(row[0]) for row in rows if row]
    modules = [file for file in files if file.name.endswith(MODULES) and ".." not in file.parts]
    packages = {module.parent for module in modules if module.name.startswith("__init__.")}
    return {next((one for one in module.parents[-2::-1] if one in packages), module) for module in modules}
