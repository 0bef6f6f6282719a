"""Which files are of installed libraries, and which are the user's own."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
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
    return tuple(dict.fromkeys(f"{Path(root).resolve()}{os.sep}" for root in roots))
