"""Finds out, in a nanny, whether the process that it has started uses a processor: a silent one may only compute."""

from __future__ import annotations

import asyncio
import glob
from contextlib import suppress
from pathlib import Path
from typing import Literal

import psutil
from distributed import Nanny

Action = Literal["answer", "serve"]
"""What a hanging role does not do: its whole process is silent, or only the thread that serves."""
WATCH_SECS = 2.0
"""For how long a nanny watches the process that it has started."""
LEAST_SECS: dict[Action, float] = {"answer": 0.02, "serve": 0.2}
"""Processor time within `WATCH_SECS` from which a process counts as computing, by what its role does not do. A process
that does not answer uses nothing if it hangs; the event loop of one that does not serve takes a few hundredths.
"""


async def is_busy(what: Action, dask_worker: Nanny) -> bool:
    """Return whether the process that a nanny has started uses a processor, or waits for one. Takes two seconds."""
    if dask_worker.pid is None:
        return False
    try:
        process = psutil.Process(dask_worker.pid)
        before = _processor_secs(process)
        await asyncio.sleep(WATCH_SECS)
        is_used = _processor_secs(process) - before >= LEAST_SECS[what]
        return is_used or (what == "answer" and is_runnable(dask_worker.pid))
    except psutil.NoSuchProcess:
        return False


def is_runnable(pid: int) -> bool:
    """Return whether a thread of a process runs, or waits for a processor or a disk.

    It is False where the system does not report it (Linux does, in ``/proc``).
    """
    states = []
    for stat in glob.glob(f"/proc/{pid}/task/*/stat"):
        with suppress(OSError):  # the thread has ended
            states.append(Path(stat).read_text().rpartition(") ")[2][:1])
    return bool({"R", "D"} & set(states))


def _processor_secs(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
