"""Another host, as far as its name and one directory go: a process with a host name, and a disk there, of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.full_disk import ALONE

__all__ = ["OTHER_HOST", "on_other_host"]

OTHER_HOST = "otherhost"
ENTER = 'hostname "$1" && mount -t tmpfs tmpfs "$2" && shift 2 && exec "$@"'


def on_other_host(directory: Path) -> list[str]:
    """Return the words that have a command run as on another host, where `directory` is there, and empty.

    The test is skipped where nobody may have such a process.
    """
    words = [*ALONE, "--uts", "sh", "-c", ENTER, "sh", OTHER_HOST, str(directory)]
    try:
        refused = subprocess.run([*words, "true"], capture_output=True, text=True).stderr
    except FileNotFoundError as error:
        refused = str(error)
    if refused:
        pytest.skip(f"a process cannot have a disk of its own here: {refused.strip()}")
    return words
