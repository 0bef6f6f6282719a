"""Resource use of processes, and functions to hold them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

import psutil

__all__ = ["clock_secs", "cpu_secs", "hold", "let_go", "pss_bytes"]


def cpu_secs(pids: Iterable[int]) -> float:
    """Return the CPU seconds that living processes have used so far, their ended children included.

    Raises
    ------
    psutil.NoSuchProcess
        If one of them has ended.
    """
    return sum(float(sum(psutil.Process(pid).cpu_times()[2:4])) + clock_secs(pid) for pid in pids)


def clock_secs(pid: int) -> float:
    """Return the CPU seconds of a living process as precisely as its own ``time.process_time``.

    Raises
    ------
    OSError
        If it has ended.

    References
    ----------
    clock_getcpuclockid(3): Linux makes the clock of a process of the bits of its id.
    """
    return time.clock_gettime(~pid << 3 | 2)


def pss_bytes(pid: int) -> int:
    """Return the proportional set size of a process: its own pages, and its share of those that it shares."""
    return int(psutil.Process(pid).memory_full_info().pss)


def hold(pids: Iterable[int]) -> None:
    """Stop processes where they are; they keep what they hold and use no CPU."""
    _signal(pids, signal.SIGSTOP)


def let_go(pids: Iterable[int]) -> None:
    """Let held processes go on."""
    _signal(pids, signal.SIGCONT)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
