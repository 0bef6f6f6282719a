"""Identifies a process, so that another one can tell later whether it is still alive."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from psflow.ps_runtime.scratch import boot_id


@dataclass(frozen=True, slots=True)
class ProcessId:
    """The identity of one process, which differs from that of a later process with the same pid."""

    host: str
    boot: str
    pid: int
    started: int

    @classmethod
    def current(cls) -> ProcessId:
        """Return the identity of this process."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessId:
        """Return the identity of the process of this host with the id `pid`."""
        return cls(socket.gethostname(), _boot(), pid, _started(pid) or 0)

    def is_alive(self) -> bool | None:
        """Return whether the process is alive; None if that is unknown here."""
        if not self.boot or self.boot != _boot():
            return None
        return _started(self.pid) == self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _boot() -> str:
    try:
        pids = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return boot_id() and f"{boot_id()} {pids}"


def _started(pid: int) -> int | None:
    """Return the start of the process `pid` in ticks since the boot; None if it does not exist or is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before the parenthesis may hold anything
    return None if state in "ZX" else int(fields[18])
