"""For all tests: nothing reports usage, nothing outside is read or changed, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import settings

from psflow.ps_runtime.cluster.fork_server import scratch_directory
from psflow.ps_runtime.config.environment import telemetry_off

SETTLE_SECS = 10.0
POLL_SECS = 0.02

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
    "pymp-",
)
"""Beginnings of the names of threads that Dask, Prefect and MLflow keep until the process ends."""

SHARED_MEMORY = "shared memory"

LIBRARY_PROCESSES = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python keeps one of each until the process ends."""

# where a run decides over a change it takes the same examples each time; elsewhere new ones are tried
settings.register_profile("psflow", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("psflow")


def pytest_configure(config: pytest.Config) -> None:
    """Set the scene before any test module imports a library that looks at its environment."""
    telemetry_off()
    for name in ("TF_CONFIG", "PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        os.environ.pop(name, None)
    scratch_directory()  # it is kept until the process ends: not in the directory of this run
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # where pytest's own directories stay
    home = Path(tempfile.mkdtemp(prefix="psflow-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    (home / "tmp").mkdir()
    os.environ["PREFECT_HOME"] = str(home / "prefect")
    os.environ["TMPDIR"] = tempfile.tempdir = str(home / "tmp")  # of this run alone, so that all of it can be judged


@pytest.fixture(scope="session", autouse=True)
def _loaded_under_one_name() -> Iterator[None]:
    """Fail at the end if a file of the checkout was imported under two names."""
    yield
    root = Path(__file__).resolve().parents[1]
    names: dict[Path, list[str]] = {}
    for name, module in list(sys.modules.items()):
        file = None if name.startswith("code_model_") else getattr(module, "__file__", None)  # MLflow runs those
        if isinstance(file, str) and (path := Path(file).resolve()).is_relative_to(root):
            names.setdefault(path, []).append(name)
    twice = {str(path): sorted(known) for path, known in names.items() if len(known) > 1 and ".venv" not in path.parts}
    assert twice == {}


def _left_over() -> set[str]:
    """Return what this process holds now, each thing under a name that is its own."""
    this = psutil.Process()
    found = {f"temporary file {path}" for path in Path(tempfile.gettempdir()).iterdir()}
    found |= {f"{SHARED_MEMORY} {path}" for path in Path("/dev/shm").glob("*")}
    found |= {
        f"thread {thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if not thread.name.startswith(LIBRARY_THREADS)
    }
    for child in this.children(recursive=True):
        try:
            command = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and not any(name in command for name in LIBRARY_PROCESSES):
                found.add(f"process {child.pid}: {command}")
        except psutil.NoSuchProcess:
            continue
    # unnamed Unix sockets and pipes are how event loops wake themselves up
    for socket in this.net_connections("all"):
        if socket.laddr:
            found.add(f"socket {socket.fd} at {socket.laddr}, {socket.status}")
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith("/memfd:"):
            found.add(f"file descriptor {fd}: {target}")
    return found


def _let_mlflow_disconnect() -> None:
    """Drop the connections to servers that MLflow keeps in a cache until the process ends."""
    if "mlflow" in sys.modules:
        from mlflow.utils.request_utils import _cached_get_request_session

        _cached_get_request_session.cache_clear()


@contextmanager
def _no_leaks(settle_secs: float = SETTLE_SECS, *, shares_cluster: bool = False) -> Iterator[None]:
    """Fail if the block leaves something behind; the connections of a cluster that outlives it are not its own."""
    before = _left_over()
    yield
    _let_mlflow_disconnect()
    gc.collect()
    deadline = time.monotonic() + settle_secs
    while (leaks := _leaks_since(before, shares_cluster)) and time.monotonic() < deadline:
        _wait_a_little()
    if leaks:
        pytest.fail(f"left behind after {settle_secs:g} s:\n" + "\n".join(sorted(leaks)))


def _leaks_since(before: set[str], shares_cluster: bool) -> set[str]:
    leaks = _left_over() - before
    leaks = {leak for leak in leaks if not (shares_cluster and leak.startswith("socket") and "ESTABLISHED" in leak)}
    named = {leak for leak in leaks if leak.startswith(SHARED_MEMORY)}
    maps = "".join(_maps_of_strangers()) if named else ""
    return leaks - {leak for leak in named if leak.removeprefix(f"{SHARED_MEMORY} ") in maps}


def _maps_of_strangers() -> Iterator[str]:
    """Yield what the other processes of the machine have mapped: it is theirs, and not left behind."""
    this = psutil.Process()
    ours = {this.pid, *(child.pid for child in this.children(recursive=True))}
    for pid in set(psutil.pids()) - ours:
        with suppress(OSError):
            yield Path(f"/proc/{pid}/maps").read_text()


def _wait_a_little() -> None:
    """Wait until a child process ends, or for a moment where there is none."""
    children = psutil.Process().children(recursive=True)
    if children:
        psutil.wait_procs(children, timeout=POLL_SECS)
    else:
        threading.Event().wait(POLL_SECS)


@pytest.fixture(scope="session")
def no_leaks() -> Callable[..., AbstractContextManager[None]]:
    """Return a context in which nothing may be left behind; it fails the test otherwise."""
    return _no_leaks


@pytest.fixture(autouse=True)
def _leak_guard(request: pytest.FixtureRequest) -> Iterator[None]:
    marker = request.node.get_closest_marker("cluster")
    if marker is None:
        yield
    else:
        with _no_leaks(shares_cluster=marker.kwargs.get("shared", False)):
            yield
