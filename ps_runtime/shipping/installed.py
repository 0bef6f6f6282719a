"""Which files are of installed libraries, and which are the user's own."""

from __future__ import annotations

import functools
import importlib.metadata
import itertools
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_installed"]

LIBRARY_FOLDERS = ("site-packages", "dist-packages")


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
    """Yield what ``pip install --target`` has put into a folder, where files of the user may be as well."""
    known = {one.name for one in folder.glob("*.dist-info")}  # an .egg-info is of a checkout
    for distribution in importlib.metadata.distributions(path=[str(folder)]) if known else ():
        names = {file.parts[0] for file in distribution.files or ()}
        if names & known:
            yield from (f"{folder / name}{os.sep}" for name in names - {"..", "bin"})
