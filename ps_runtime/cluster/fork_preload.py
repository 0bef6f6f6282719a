"""Imports everything that a role needs into the fork server; each worker of a local cluster is a copy of it.

Importing this module changes the process, so only the fork server does. No import may start a thread: a copy would
lack it.
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
    # Dask workers import these as they start
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
        with suppress(ImportError):  # the worker reports a missing import itself
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

    Its definitions are sent by value, as to a worker of any other cluster. A program without ``if __name__ ==
    "__main__":`` would start its cluster again in each copy, and a flow would import all of Prefect.
    """
    module: Any = spawn
    for name in ("_fixup_main_from_name", "_fixup_main_from_path"):  # multiprocessing has no public way
        setattr(module, name, _leave_out)


def _leave_out(main: str) -> None:
    """Do nothing."""


def _let_go_of_copies() -> None:
    """End a copy without a traceback if its owner gave it up before it began: its semaphores are gone."""
    module: Any = spawn
    begin = module._main  # multiprocessing has no public way

    def _begin(pipe: int, parent_sentinel: int) -> int:
        try:
            code: int = begin(pipe, parent_sentinel)  # later failures of a copy are reported by the copy
        except (FileNotFoundError, EOFError):
            return 1
        return code

    module._main = _begin


def _remove_scratch(directory: str, pid: int) -> None:
    """Remove the files that all copies have left, as the fork server `pid` ends; a copy that ends does nothing."""
    if os.getpid() == pid:
        deadline = Deadline(TRACKER_SECS)
        while semaphores_of(directory) and not deadline.has_passed:
            time.sleep(0.05)
        remove_abandoned(directory)


_prepare()
