"""A small disk in memory for the model_dir of a trial: it becomes full, or read-only, and is well again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, assert_never

from psflow.ps_runtime.deadline import Deadline
from tests.chaos.gates import POLL_SECS
from tests.chaos.trials import Fault
from tests.full_disk import ALONE

SIZE = "16m"
OPEN_SECS = 10.0
"""That a file of a checkpoint may be open for writing; a lock may be for as long as a phase lasts."""
HAS_OWN_MOUNTS = "PSFLOW_CHAOS_HAS_OWN_MOUNTS"


def begin_with_own_mounts(module: str, arguments: Sequence[str]) -> None:
    """Begin this program again as one that may mount disks, which nobody else sees; go on if that is not allowed."""
    if can_mount() or subprocess.run([*ALONE, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        return
    environment = os.environ | {HAS_OWN_MOUNTS: "1"}
    os.execvpe(ALONE[0], [*ALONE, sys.executable, "-m", module, *arguments], environment)


def can_mount() -> bool:
    """Return whether this program may mount disks."""
    return HAS_OWN_MOUNTS in os.environ


class Disk:
    """A disk that is mounted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._filler = path / "filler"

    def harm(self, fault: Any) -> bool:
        """Make it full, or read-only; return False if it cannot be, as a file stays open for writing."""
        match fault:
            case Fault.FULL_DISK:
                self._fill()
                return True
            case Fault.READ_ONLY_DISK:
                deadline, never = Deadline(OPEN_SECS), threading.Event()
                while not (is_done := self._remount("ro")) and not deadline.has_passed:
                    never.wait(POLL_SECS)
                return is_done
            case unknown:
                assert_never(unknown)

    def heal(self) -> None:
        """Make it as it was."""
        assert self._remount("rw")
        self._filler.unlink(missing_ok=True)

    def _fill(self) -> None:
        zeros = bytes(1 << 16)
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(zeros)
            except OSError:
                return

    def _remount(self, mode: str) -> bool:
        command = ["mount", "-o", f"remount,{mode}", str(self._path)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def small_disk(path: Path) -> Iterator[Disk]:
    """Have a disk at a directory for the time of a block."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(path)], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
