"""Opens a cluster to run on: an existing one, or a local one that lasts as long as it is needed."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
import distributed.utils
from distributed import Client, SpecCluster
from distributed.worker_memory import parse_memory_limit

from psflow.ps_runtime.cluster.closed_nodes import QUIET, ClosedNanny, ClosedScheduler, ClosedWorker, quiet_logs
from psflow.ps_runtime.cluster.failures import with_causes
from psflow.ps_runtime.cluster.fork_server import shared_scratch, start_fork_server
from psflow.ps_runtime.cluster.own_security import own_security
from psflow.ps_runtime.cluster.worker_keeping import KEEPS_NANNIES, keep_workers, want_no_workers
from psflow.ps_runtime.deadline import Deadline, stop_clock
from psflow.ps_runtime.errors import ClusterError, UsageError
from psflow.ps_runtime.specs.cluster_task import CLOSED_SCHEMES

LOCAL_CLUSTER = {
    **QUIET,
    **KEEPS_NANNIES,
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": None,
}

LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_SECS = 10.0
"""For a scheduler that exists."""
START_TIMEOUT_SECS = 60.0
"""For a cluster of our own."""
CLOSE_TIMEOUT_SECS = 30.0
"""For the workers of a cluster of our own to end."""
FILES_PER_WORKER, OTHER_FILES = 12, 64
"""Open files of a process with a cluster of its own, for each worker and beside these: 10 and 22 were counted, and a
Prefect server adds some.
"""

_log = logging.getLogger(__name__)

_open: list[SpecCluster] = []
"""Clusters of this process."""
_warned: set[str] = set()
"""Faults that this process has warned of."""


@contextmanager
def open_cluster(
    address: str | None,
    num_slots: int,
    timeout_secs: float = START_TIMEOUT_SECS,
    *,
    warn: Callable[[str], object] = _log.warning,
) -> Iterator[Client]:
    """Connect to a Dask cluster.

    Raises
    ------
    UsageError
        If no scheduler answers at `address`, or if this process may not open enough files for a cluster of our own.
    ClusterError
        If the workers of a cluster of our own do not come up.
    """
    if address is not None:
        # closing a client while it reconnects to a lost scheduler logs a traceback
        with quiet_logs("distributed.client"), _client(address) as client:
            if (fault := tls_fault(client)) is not None:
                warn(fault)
            yield client
        return
    _allow_open_files(num_slots)
    start_fork_server()
    distributed.utils._forkserver_preload_set = True  # else it would import pandas here to have it preloaded
    with (
        quiet_logs(),
        tempfile.TemporaryDirectory(dir=shared_scratch(), ignore_cleanup_errors=True) as scratch,
        dask.config.set(LOCAL_CLUSTER | {"temporary-directory": scratch}),  # else Dask leaves one behind
        _local_cluster(num_slots, scratch, timeout_secs) as cluster,
        Client(cluster, timeout=timeout_secs) as client,
    ):
        try:
            client.wait_for_workers(num_slots, timeout=timeout_secs)
        except TimeoutError:
            num_there = len(client.nthreads())
            raise ClusterError(
                num_slots, f"only {num_there} of {num_slots} Dask workers started within {timeout_secs:g} s"
            ) from None
        try:
            yield client
        except BaseException:
            _kill_workers(cluster)
            raise


def tls_fault(client: Client) -> str | None:
    """Return what it means that the scheduler of `client` has no TLS; None if it has, or is part of this process."""
    scheduler: Any = client.scheduler
    if scheduler.address.startswith(CLOSED_SCHEMES):
        return None
    return (
        f"the Dask scheduler at {scheduler.address} has no TLS: anyone who can connect to it can run code as the owner "
        "of its workers, and anyone who can read its traffic gets the key that encrypts variables and gradients; give "
        "it certificates, and name it by its tls:// address"
    )


def warn_of_tls(client: Client) -> None:
    """Log the `tls_fault` of the client that a program passes, if it has one: once per process."""
    fault = tls_fault(client)
    if fault is not None and fault not in _warned:
        _warned.add(fault)
        _log.warning(fault)


def _allow_open_files(num_workers: int) -> None:
    """Raise the soft limit of open files to what a cluster needs, as far as the hard limit allows.

    Raises UsageError if it does not allow that.
    """
    needed = OTHER_FILES + FILES_PER_WORKER * num_workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and hard < needed:
        what = f"a Dask cluster of {num_workers} workers needs {needed} open files, but a process may open {hard} here"
        raise UsageError((f"{what}; raise the hard limit (ulimit -Hn), or start fewer roles",))
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


@contextmanager
def _local_cluster(num_workers: int, scratch: str, timeout_secs: float) -> Iterator[SpecCluster]:
    """Start a cluster that only this process can use, and close it, both within a time limit."""
    deadline = Deadline(timeout_secs)
    security = own_security()
    common = {"host": LOOPBACK, "protocol": "tls://", "security": security}
    nanny = {
        **common,
        "worker_class": ClosedWorker,
        "nthreads": 1,
        "memory_limit": parse_memory_limit("auto", 1, num_workers, logger=_log),
        "silence_logs": logging.CRITICAL,
        "env": {"TMPDIR": scratch},  # the files of a killed worker are removed with it
        "death_timeout": timeout_secs,
    }
    try:
        cluster = SpecCluster(
            scheduler={"cls": ClosedScheduler, "options": {**common, "port": 0, "dashboard": False}},
            workers={i: {"cls": ClosedNanny, "options": nanny} for i in range(num_workers)},
            security=security,
            silence_logs=logging.CRITICAL,
        )
    except Exception as error:  # a nanny reports any end of its worker as a failed start
        why = f"a worker process ended before it was ready ({with_causes(error)})"
        if deadline.has_passed:
            why = f"a worker process was not ready after {timeout_secs:g} s"
        logging.getLogger("distributed.process").setLevel(logging.WARNING)  # Dask logs what it ends at exit
        raise ClusterError(num_workers, why) from None
    _open.append(cluster)
    keep_workers(cluster)
    try:
        yield cluster
    finally:
        try:
            _close(cluster)
        finally:
            _open.remove(cluster)


def _close(cluster: SpecCluster) -> None:
    """Close a cluster of our own; kill its workers if that takes too long, or if the exit is immediate."""
    timeout_secs = stop_clock.limited(CLOSE_TIMEOUT_SECS)
    loop: Any = cluster.loop
    try:
        cluster.close(timeout=timeout_secs)
        _close_abandoned(loop)
    except TimeoutError:
        _log.warning("the Dask cluster on this machine did not end within %g s", timeout_secs)
        _kill_workers(cluster)
    except BaseException:  # a second signal, for instance: nothing else would end them
        _kill_workers(cluster)
        raise


def _close_abandoned(loop: Any) -> None:
    """Close connections that a closed loop still holds, both ends, given up between TCP and TLS."""
    for connection, _ in loop.handlers.values():
        loop.close_fd(connection)


def is_own_cluster(client: Client) -> bool:
    """Return whether this process has started the cluster of `client` by `open_cluster`."""
    return client.cluster in _open


def kill_local_workers() -> None:
    """Kill the worker processes of all open clusters that this process has started."""
    for cluster in list(_open):
        _kill_workers(cluster)


def _kill_workers(cluster: SpecCluster) -> None:
    """Kill the processes of a cluster of our own: a role in them may be in a long call."""
    assert cluster.loop is not None, "it runs in a thread of its own"
    want_no_workers(cluster)
    for nanny in list(cluster.workers.values()):
        pid = nanny.pid
        cluster.loop.add_callback(nanny.close)  # else it would replace the killed process
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _client(address: str) -> Client:
    try:
        return Client(address, timeout=CONNECT_TIMEOUT_SECS, name="psflow")
    except TypeError as error:  # there is no certificate to show
        raise UsageError(
            (
                f"{address} needs certificates, but the configuration of Dask has none ({error}); set "
                "distributed.comm.tls.ca-file, .client.cert and .client.key, for instance in ~/.config/dask/tls.yaml",
            )
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(
            (
                f"no Dask scheduler answers at {address} within {CONNECT_TIMEOUT_SECS:g} s: {error}; "
                "start it, or correct cluster.address",
            )
        ) from None
