"""Looks for what a test leaves behind in this process and in those that it started, and nowhere else on the host."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import psutil
import pytest

SETTLE_SECS = 60.0
POLL_SECS = 0.02
SEND_SECS = 10.0

LIBRARY_THREADS = (
    "AnyIO worker thread",
    "Dask-",
    "EventsWorker",
    "GlobalEventLoopThread",
    "IO loop",
    "OtelBatch",
    "Profile",
    "RunSyncEventLoopThread",
    "APILogWorkerThread",
    "asyncio_",
    "fsspecIO",
    "pymp-",
    "shared memory watch",
)
"""Beginnings of the names of threads that libraries keep until the process ends, and of our own."""

LIBRARY_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python keeps one of each until the process ends."""

SHARED_MEMORY = Path("/dev/shm")


@contextmanager
def no_leaks(settle_secs: float = SETTLE_SECS, *, shares_cluster: bool = False) -> Iterator[None]:
    """Fail if the block leaves something behind; the connections to a cluster that outlives it are not its own."""
    _let_prefect_send()
    with SharedMemoryWatch() as watch:
        before = _held(shares_cluster)
        yield
        _let_mlflow_disconnect()
        leaks = _held(shares_cluster) - before | watch.left()
        if leaks:
            gc.collect()  # 0.2 s with all libraries: not after each test that leaves nothing
        deadline = time.monotonic() + settle_secs
        while leaks and (leaks := _held(shares_cluster) - before | watch.left()) and time.monotonic() < deadline:
            _wait_a_little()
    if leaks:
        pytest.fail(f"left behind after {settle_secs:g} s:\n" + "\n".join(sorted(leaks)))


def _held(shares_cluster: bool) -> set[str]:
    """Return what this process holds now, each thing under a name that is its own."""
    found = {f"temporary file {path}" for path in Path(tempfile.gettempdir()).iterdir()}
    found |= {
        f"thread {thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if not thread.name.startswith(LIBRARY_THREADS)
    }
    return found | set(_processes()) | set(_sockets(shares_cluster)) | set(_unnamed_shared_memory())


def _processes() -> Iterator[str]:
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and not any(name in command for name in LIBRARY_PROCESSES):
                yield f"process {child.pid}: {command}"


def _sockets(shares_cluster: bool) -> Iterator[str]:
    """Yield the sockets with a name: unnamed Unix sockets and pipes are how event loops wake themselves up."""
    for socket in psutil.Process().net_connections("all"):
        if socket.laddr and not (shares_cluster and socket.raddr):
            # the state of a connection changes with what its other end does
            what = f"connected to {socket.raddr}" if socket.raddr else socket.status
            yield f"socket {socket.fd} at {socket.laddr}, {what}"


def _unnamed_shared_memory() -> Iterator[str]:
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{fd}")
            if target.startswith("/memfd:"):
                yield f"file descriptor {fd}: {target}"


class SharedMemoryWatch:
    """Finds the new files in ``/dev/shm`` that are of this process or of one below it.

    A file there does not say who made it, and whoever made it may be gone when the test ends. So a thread looks at the
    folder all the time, and at each new file while whoever made it still holds it.
    """

    def __init__(self) -> None:
        self._seen = self._ours = frozenset[str]()
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shared memory watch")

    def __enter__(self) -> Self:
        self._seen = frozenset(os.listdir(SHARED_MEMORY))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def left(self) -> set[str]:
        """Return what is left of them."""
        self._look()
        return {f"shared memory {SHARED_MEMORY / name}" for name in self._ours & self._seen}

    def _run(self) -> None:
        while not self._ends.wait(POLL_SECS):
            self._look()

    def _look(self) -> None:
        with self._lock:
            names = frozenset(os.listdir(SHARED_MEMORY))
            if new := names - self._seen:
                held = "".join(_files_in_use())
                self._ours |= {name for name in new if f"{SHARED_MEMORY / name}\n" in held}
            self._seen = names


def _files_in_use() -> Iterator[str]:
    """Yield the paths of the files that this process and those below it have mapped or open, a line each."""
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(OSError):
            yield Path(f"/proc/{process.pid}/maps").read_text()
        with suppress(OSError):
            for fd in os.listdir(f"/proc/{process.pid}/fd"):
                with suppress(OSError):
                    yield os.readlink(f"/proc/{process.pid}/fd/{fd}") + "\n"


def _let_mlflow_disconnect() -> None:
    """Drop the connections to servers that MLflow keeps in a cache until the process ends."""
    if "mlflow" in sys.modules:
        from mlflow.utils.request_utils import _cached_get_request_session

        _cached_get_request_session.cache_clear()


def _let_prefect_send() -> None:
    """End the threads that send logs and events of earlier flows up to 2 s late, each by a connection of its own."""
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogWorker

        APILogWorker.drain_all(SEND_SECS)
        EventsWorker.drain_all(SEND_SECS)


def _wait_a_little() -> None:
    """Wait until a child process ends, or for a moment where there is none."""
    children = psutil.Process().children(recursive=True)
    if children:
        psutil.wait_procs(children, timeout=POLL_SECS)
    else:
        threading.Event().wait(POLL_SECS)
