"""What the fork server imports; each worker of a local cluster is a copy of it.

Importing this changes the process, so nobody else does. No import may start a thread: a copy would lack it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import spawn
from typing import Any

import numpy as np

from psflow.ps_runtime.config.environment import inherited_scratch
from psflow.ps_runtime.signals import OF_THE_OWNER

IMPORTS = (
    "psflow.ps_runtime.cluster.closed_nodes",
    "psflow.ps_runtime.cluster.role_task",
    "safetensors.numpy",
    "scipy.sparse",
    # what a Dask worker imports as it starts
    "distributed.nanny",
    "tornado.platform.asyncio",
)

COMMANDS = ("psflow", "prefect.engine")
"""Programs that define nothing which a worker could need; the latter is how Prefect runs a flow by itself."""


def _prepare() -> None:
    for number in OF_THE_OWNER:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_OWNER)  # they were blocked until they could be ignored
    for name in IMPORTS:
        with suppress(ImportError):  # the worker that misses it will say so
            importlib.import_module(name)
    os.register_at_fork(after_in_child=np.random.seed)  # else all copies draw the same numbers
    _leave_commands_out()
    if (scratch := inherited_scratch()) is not None:
        atexit.register(_remove_scratch, scratch, os.getpid())
    gc.collect()
    gc.freeze()  # the collector would write to shared pages


def _leave_commands_out() -> None:
    """Keep copies from importing the main program of their owner, as multiprocessing would, if that is a command.

    All of Prefect would be imported with it, in each worker.
    """
    module: Any = spawn
    for name in ("_fixup_main_from_name", "_fixup_main_from_path"):  # there is no public way
        setattr(module, name, partial(_unless_command, getattr(module, name)))


def _unless_command(import_main: Callable[[str], None], main: str) -> None:
    if os.path.basename(main) not in COMMANDS:
        import_main(main)


def _remove_scratch(directory: str, pid: int) -> None:
    """Remove what all copies have left, as the fork server `pid` ends; a copy that ends leaves it alone."""
    if os.getpid() == pid:
        shutil.rmtree(directory, ignore_errors=True)


_prepare()
