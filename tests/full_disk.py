"""A file system that is really full: a small one in memory, which only one process and its children see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["run_on_small_disk"]

ROOT = Path(__file__).parents[1]
ALONE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
MOUNT = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'


def run_on_small_disk(program: str, directory: Path, size: str, *arguments: str, timeout_secs: float = 280.0) -> str:
    """Run a Python program for which `directory` lies on a disk of `size`, such as ``300k``; return its stdout.

    The test is skipped where nobody may have such a disk.
    """

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        words = [*ALONE, "sh", "-c", MOUNT, "sh", size, str(directory), *command]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, cwd=ROOT, start_new_session=True) as process:
            try:
                out, err = process.communicate(timeout=timeout_secs)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    try:
        refused = run("true").stderr
    except FileNotFoundError as error:
        refused = str(error)
    if refused:
        pytest.skip(f"a file system cannot be mounted here: {refused.strip()}")
    done = run(sys.executable, "-c", program, str(directory), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
