"""The file that records the servers of ``psflow up``, by which other commands find them.

Nothing here may import Prefect, MLflow or Dask: each command reads this before it imports any of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from psflow.ps_runtime.checkpoint.files import atomic_write_bytes
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.config.environment import HOW_TO_SET_HOME, prefect_home
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ConfigError, WaitTimeoutError
from psflow.tasks.basic_auth import with_auth

FILE = "psflow-servers.json"
LOCK = ".psflow-servers.lock"
POLL_SECS = 0.1

Kind = Literal["prefect", "mlflow"]


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server in the background."""

    kind: Kind
    url: str
    serves: str
    log: str
    process: ProcessId
    auth_string: str | None


@dataclass(frozen=True)
class Servers:
    """Running servers that ``psflow up`` started."""

    prefect_api_url: str | None
    prefect_auth_string: str | None
    mlflow: Mapping[str, str]

    def mlflow_uri(self, store: str) -> str | None:
        """Return the address of the server of `store`, the absolute path of a file or the address of a server."""
        return self.mlflow.get(store.rstrip("/"))


LOOPBACK_NAMES = ("//127.0.0.1:", "//localhost:")
"""Prefix of the addresses of these servers, and an equivalent spelling."""


def found() -> Servers:
    """Return the servers that were started here and are alive, whether they answer yet or not.

    Notes
    -----
    Does not block, and sends no requests. A new server queues requests until it can answer.
    """
    living = [server for server in read_started() if server.process.is_alive()]
    mlflow = {
        name: with_auth(server.url, server.auth_string)
        for server in living
        if server.kind == "mlflow"
        for name in (server.serves, server.url, server.url.replace(*LOOPBACK_NAMES))
    }
    for server in living:
        if server.kind == "prefect":
            return Servers(f"{server.url}/api", server.auth_string, mlflow)
    return Servers(None, None, mlflow)


def read_started() -> list[StartedServer]:
    """Return the recorded servers, dead ones included; none if the file is missing or unreadable."""
    try:
        entries = json.loads((prefect_home() / FILE).read_text())
        return [StartedServer(**{**entry, "process": ProcessId(**entry["process"])}) for entry in entries]
    except (OSError, KeyError, TypeError, ValueError):
        return []


def write_started(servers: Sequence[StartedServer]) -> None:
    """Replace the record by `servers`; hold `record_lock` since reading it. Only the owner can read the file."""
    text = json.dumps([asdict(server) for server in servers], indent=1) + "\n"
    atomic_write_bytes(str(prefect_home() / FILE), text.encode(), is_private=True)


@contextmanager
def record_lock(timeout_secs: float) -> Iterator[Path]:
    """Let one process at a time start or stop servers; gives the directory of their files.

    Raises
    ------
    ConfigError
        If the directory is not writable.
    WaitTimeoutError
        If the other process does not end in time.
    """
    home = prefect_home()
    deadline = Deadline(timeout_secs)
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(home / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        what = f"{home} cannot be written to: {error.strerror}; {HOW_TO_SET_HOME}"
        raise ConfigError((what,)) from None
    try:
        while not _is_locked(descriptor):
            if deadline.has_passed:
                raise WaitTimeoutError(
                    "another psflow up or psflow down",
                    "end",
                    timeout_secs,
                    f"it holds {home / LOCK}; wait for it to end, or stop it",
                )
            time.sleep(POLL_SECS)
        yield home
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
