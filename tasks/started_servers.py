"""The file that remembers which servers ``psflow up`` has started: it is how other commands find them.

Nothing here may import Prefect, MLflow or Dask: each command looks here before it imports any of them.
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
    """The servers that ``psflow up`` has started and that live."""

    prefect_api_url: str | None
    prefect_auth_string: str | None
    mlflow: Mapping[str, str]

    def mlflow_uri(self, store: str) -> str | None:
        """Return the address of the server of `store`: a file, by its absolute path, or a server by its address."""
        return self.mlflow.get(store.rstrip("/"))


LOOPBACK_NAMES = ("//127.0.0.1:", "//localhost:")
"""How the addresses of these servers begin, and how people write them, too."""


def found() -> Servers:
    """Return the servers that were started here and whose processes live, whether they answer yet or not.

    Notes
    -----
    Does not block, and asks nobody. A server that has just been started keeps requests until it can answer.
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
    """Return what the file says, dead servers included; nothing if there is no file, or none that can be read."""
    try:
        entries = json.loads((prefect_home() / FILE).read_text())
        return [StartedServer(**{**entry, "process": ProcessId(**entry["process"])}) for entry in entries]
    except (OSError, KeyError, TypeError, ValueError):
        return []


def write_started(servers: Sequence[StartedServer]) -> None:
    """Remember `servers`, and no others; hold `record_lock` from reading them on. The owner alone can read it."""
    text = json.dumps([asdict(server) for server in servers], indent=1) + "\n"
    atomic_write_bytes(str(prefect_home() / FILE), text.encode(), is_private=True)


@contextmanager
def record_lock(timeout_secs: float) -> Iterator[Path]:
    """Let one process at a time start or stop servers; give the directory of their files.

    Raises
    ------
    ConfigError
        If the directory cannot be written to.
    WaitTimeoutError
        If another one does not end in time.
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
