"""Starts multiprocessing's fork server ahead of the workers of a local cluster, which are copies of it.

It imports what a role needs once, while the command that wants a cluster still plans. A worker is ready a moment
after it is requested, and shares the memory of these imports with the others.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker, util
from typing import Any

from psflow.ps_runtime.config.environment import environment, glibc_tunable, scratch_settings
from psflow.ps_runtime.scratch import PREFIX, new_scratch
from psflow.ps_runtime.signals import signals_blocked

PRELOAD = "psflow.ps_runtime.cluster.fork_preload"

ENVIRONMENT = {
    # as Dask sets it for spawned workers; here it also keeps threads out of the copied process
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # copies of megabytes bypass the cache: otherwise the target memory is read first, for nothing
    **glibc_tunable("glibc.cpu.x86_non_temporal_threshold=4194304"),
}
"""Environment of the fork server and its copies; read at process start, so a role cannot set it for itself."""

MAX_TEMPDIR_BYTES = 107 - len(f"/{PREFIX}12345678/listener-12345678")
"""Maximum length of the path of the directory for temporary files: multiprocessing makes a socket in a directory with
`PREFIX` there, and Linux allows 107 bytes for the path of the socket.
"""
AFTER_ALL = -1000
"""Priority of an exit handler of this process that runs after all others."""


@functools.cache
def shared_scratch() -> str:
    """Return the directory for temporary files of this process, its fork server and copies. The first call makes it.

    It is in ``/tmp`` where ``TMPDIR`` is too long for the name of a socket. It is removed when this process ends; if
    this process is killed, when the fork server ends, after all copies; if all are killed, by the next `new_scratch`.
    """
    has_room = len(os.fsencode(tempfile.gettempdir())) <= MAX_TEMPDIR_BYTES
    path, _ = new_scratch(None if has_room else "/tmp")
    util.Finalize(None, shutil.rmtree, (path,), {"ignore_errors": True}, exitpriority=AFTER_ALL)
    process: Any = multiprocessing.current_process()  # multiprocessing has no public way
    process._config.setdefault("tempdir", path)  # for the socket of the fork server
    process._config["semprefix"] = f"/{os.path.basename(path)}"  # of semaphores, which would outlive a killed process
    return path


def start_fork_server() -> None:
    """Start the fork server of this process, unless it runs already. Does not wait for its imports."""
    forkserver.set_forkserver_preload([PRELOAD])
    resource_tracker.ensure_running()  # otherwise the fork server would start it, which unblocks signals
    with environment(ENVIRONMENT | scratch_settings(shared_scratch())), signals_blocked():
        forkserver.ensure_running()


def stop_fork_server() -> None:
    """End the fork server, if there is one, after its copies; left alone it ends a moment after this process.

    Idempotent.
    """
    server: Any = forkserver._forkserver  # multiprocessing has no public way
    if server._forkserver_pid is not None:
        os.kill(server._forkserver_pid, signal.SIGKILL)  # it has nothing to save
        with suppress(FileNotFoundError):  # of its socket, if that was removed with the directory
            server._stop()
