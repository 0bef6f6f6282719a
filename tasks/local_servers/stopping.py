"""Stop the servers that ``psflow up`` has started, and no other process."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import psutil

from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.tasks.started_servers import StartedServer, read_started, record_lock, write_started

__all__ = ["end_servers", "take_down"]

KILL_SECS = 5.0
"""For the system to end a process that was killed."""


def take_down(timeout_secs: float = 10.0) -> list[StartedServer]:
    """Stop all servers that were started on this host; return those that were up.

    Raises
    ------
    WaitTimeoutError
        If that other command takes longer, or a process does not even end when it is killed.

    Notes
    -----
    Idempotent. A process that has the id of a server that died is recognised by its start time, and left alone.
    """
    with record_lock(timeout_secs):
        servers = read_started()
        ended = [server for server in servers if server.process.is_alive()]
        end_servers(ended, timeout_secs)
        # those of another host, or container, that shares the directory are not ours to stop
        write_started([server for server in servers if server.process.is_alive() is None])
    return ended


def end_servers(servers: Sequence[StartedServer], timeout_secs: float) -> None:
    """Terminate the processes of servers, wait for them, and kill those that take longer than `timeout_secs`."""
    processes = [process for server in servers if (process := _process_of(server)) is not None]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, slow = psutil.wait_procs(processes, timeout_secs)
    for process in slow:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, left = psutil.wait_procs(slow, KILL_SECS)
    if left:
        pids = ", ".join(str(process.pid) for process in left)
        raise WaitTimeoutError(f"the killed processes {pids}", "end", KILL_SECS)


def _process_of(server: StartedServer) -> psutil.Process | None:
    """Return the process of a server, which from then on no other one is taken for; None if it has ended."""
    try:
        process = psutil.Process(server.process.pid)
    except psutil.NoSuchProcess:
        return None
    return process if server.process.is_alive() else None
