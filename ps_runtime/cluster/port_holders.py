"""Names the process that holds a port of this machine where another process cannot listen."""

from __future__ import annotations

import os
from contextlib import suppress

import psutil


def holder_of(port: int) -> str:
    """Describe the process that listens at a port of this machine, and how to end it.

    The system may not name a process of another user.
    """
    with suppress(psutil.Error, OSError):  # it has ended meanwhile, or is not visible
        for connection in psutil.net_connections("tcp"):
            is_there = connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            if is_there and connection.pid is not None:
                return _named(psutil.Process(connection.pid))
    return "another process listens there; end it, or choose another port"


def _named(process: psutil.Process) -> str:
    if process.pid == os.getpid():
        return "its own process listens there already; close the session, or end the training, of this process"
    name = f"process {process.pid} ({process.name()}) listens there"
    if process.status() == psutil.STATUS_STOPPED:
        return f"{name}, and is stopped; end it (kill -KILL {process.pid}), or continue it (kill -CONT {process.pid})"
    return f"{name}; end it, or choose another port"
