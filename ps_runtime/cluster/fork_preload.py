"""What the fork server imports; each worker of a local cluster is a copy of it.

Importing this changes the process, so nobody else does. No import may start a thread: a copy would lack it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import time
from contextlib import suppress
from multiprocessing import spawn
from typing import Any

import numpy as np

from psflow.ps_runtime.config.environment import inherited_scratch
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.scratch import hold_scratch, remove_abandoned, semaphores_of
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

TRACKER_SECS = 2.0
"""For multiprocessing's resource tracker to remove the semaphores of a killed owner, unless it was killed, too."""


def _prepare() -> None:
    for number in OF_THE_OWNER:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_THE_OWNER)  # they were blocked until they could be ignored
    for name in IMPORTS:
        with suppress(ImportError):  # the worker that misses it will say so
            importlib.import_module(name)
    os.register_at_fork(after_in_child=np.random.seed)  # else all copies draw the same numbers
    _leave_main_program_out()
    _let_go_of_copies()
    if (scratch := inherited_scratch()) is not None:
        hold_scratch(scratch)  # copies hold it, too: they have the descriptor
        atexit.register(_remove_scratch, scratch, os.getpid())
    gc.collect()
    gc.freeze()  # the collector would write to shared pages


def _leave_main_program_out() -> None:
    """Keep copies from importing the main program of their owner, as multiprocessing would.

    What it defines comes by value, as to a worker of any other cluster. A program without ``if __name__ ==
    "__main__":`` would start its cluster once more in each copy; and all of Prefect is imported with a flow.
    """
    module: Any = spawn
    for name in ("_fixup_main_from_name", "_fixup_main_from_path"):  # there is no public way
        setattr(module, name, _leave_out)


def _leave_out(main: str) -> None:
    """Import nothing."""


def _let_go_of_copies() -> None:
    """Have a copy end without a traceback that its owner has given up before it began: its semaphores are gone."""
    module: Any = spawn
    begin = module._main  # there is no public way

    def _begin(pipe: int, parent_sentinel: int) -> int:
        try:
            code: int = begin(pipe, parent_sentinel)  # says itself what the copy fails of once it has begun
        except (FileNotFoundError, EOFError):
            return 1
        return code

    module._main = _begin


def _remove_scratch(directory: str, pid: int) -> None:
    """Remove what all copies have left, as the fork server `pid` ends; a copy that ends leaves it alone."""
    if os.getpid() == pid:
        deadline = Deadline(TRACKER_SECS)
        while semaphores_of(directory) and not deadline.has_passed:
            time.sleep(0.05)
        remove_abandoned(directory)


_prepare()
