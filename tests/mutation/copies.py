"""Copies of the checkout, one for each process that mutates: it changes files, and nobody else may see that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def copy_checkout(root: Path, target: Path) -> None:
    """Copy what Git knows or would add, links as links; its bytecode is valid for unchanged sources only."""
    shutil.rmtree(target, ignore_errors=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (root / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name, follow_symlinks=False)
    # by their time and size, as is usual, a mutant and its original may look the same
    compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "psflow"]
    subprocess.run(compiled, cwd=target, check=True)


def environment(copy: Path) -> dict[str, str]:
    """Return the environment in which tests import psflow from `copy`, and take the same examples each time."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(copy),
        "CI": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those that other libraries bring take more than half of a start
    }
