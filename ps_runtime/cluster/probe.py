"""Finds roles that hang, and ends the process of a ps, the chief or the evaluator that does nothing more.

No other mechanism does: roles wait with a deadline only for a worker, so a hanging worker is only logged. Dask waits
for five minutes.
"""

from __future__ import annotations

import asyncio
import glob
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from distributed import Client, Nanny
from distributed.scheduler import heartbeat_interval

from psflow.ps_runtime.cluster.hangs import Action, Hang, RunningIncarnation, Silence
from psflow.ps_runtime.cluster.heartbeats import heartbeat_of
from psflow.ps_runtime.specs.roles import Role

LOOKS = 6
"""Minimum number of looks at the heartbeats of a role within the timeout."""
MISSED = 4
"""Minimum number of heartbeats: in a cluster of thousands of Dask workers they come seconds apart."""
WATCH_SECS = 2.0
"""For how long a nanny watches the process that it has started."""
LEAST_SECS: dict[Action, float] = {"answer": 0.02, "serve": 0.2}
"""Processor time within `WATCH_SECS` from which a process counts as computing, by what its role does not do. A process
that does not answer uses nothing if it hangs; the event loop of one that does not serve takes a few hundredths.
"""
NANNY_SECS = 5.0
"""For a nanny to report the state of its process."""
END_SECS = 15.0
"""For a nanny to end its process; a stopped one it kills after 4 s."""

logger = logging.getLogger(__name__)


class Probe:
    """Finds incarnations that hang, and has their Dask workers ended; a hanging worker is only logged.

    A silent process is not always hanging: a library that computes for long without releasing Python's lock silences
    it, too. So the nanny checks whether the process uses a processor. If it does, psflow waits for it.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        timeout_secs: float,
        note: Callable[[RunningIncarnation, str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._topic = topic
        self._timeout_secs = timeout_secs
        self._note = note
        self._clock = clock
        self._silence = Silence()
        self._workers: Mapping[str, Any] = {}
        self._looked_at = clock()
        self._under_way: dict[str, Future[None]] = {}
        """By the address of the Dask worker."""

    def look(self, incarnations: Collection[RunningIncarnation], workers: Mapping[str, Any]) -> None:
        """Check the heartbeats of incarnations, if there are newer ones. Does not block."""
        for slot in [slot for slot, under_way in self._under_way.items() if under_way.done()]:
            _take(self._under_way.pop(slot))
        if workers is self._workers:
            return
        # during a longer gap the owner observed nothing: it, or the scheduler, was stopped itself
        secs = min(self._clock() - self._looked_at, 2 * self._timeout_secs / LOOKS)
        self._workers, self._looked_at = workers, self._clock()
        known = {running: workers[running.slot] for running in incarnations if running.slot in workers}
        heartbeats = {running: heartbeat_of(worker, self._topic, running) for running, worker in known.items()}
        timeout_secs = max(self._timeout_secs, MISSED * heartbeat_interval(len(workers)))
        for hang in self._silence.look(secs, heartbeats, timeout_secs):
            if hang.running.slot not in self._under_way:
                self._under_way[hang.running.slot] = self._run(hang, timeout_secs)

    def close(self) -> None:
        """Stop waiting for answers. Idempotent."""
        for under_way in self._under_way.values():
            under_way.cancel()
        self._under_way = {}

    def _run(self, hang: Hang, timeout_secs: float) -> Future[None]:
        loop: Any = self._client.loop
        return asyncio.run_coroutine_threadsafe(self._follow(hang, timeout_secs), loop.asyncio_loop)

    async def _follow(self, hang: Hang, timeout_secs: float) -> None:
        """End an incarnation that hangs, unless its process computes, or the others can go on without it."""
        role, slot = hang.running.role, hang.running.slot
        what = f"it did not {hang.what} for {timeout_secs:g} s"
        if await self._is_busy(hang):
            logger.warning("%s: %s, but its process computes, so psflow waits for it", role, what)
            return
        if role.role is Role.WORKER:
            logger.warning(
                "%s: %s; psflow does not end it, because the others can go on without it; its Dask worker is %s",
                role,
                what,
                slot,
            )
            return
        if not self._note(hang.running, f"{what}, so its Dask worker {slot} was ended"):
            return
        scheduler: Any = self._client.scheduler
        # as the scheduler does after worker-ttl: it removes a worker without a nanny, or with a silent one
        await scheduler.restart_workers(
            workers=[slot],
            timeout=END_SECS,
            wait_for_workers=False,
            on_error="return",
            stimulus_id=f"psflow-probe-{role}-{hang.running.incarnation}",
        )

    async def _is_busy(self, hang: Hang) -> bool:
        """Return whether the nanny of a Dask worker reports a computing process; False without a nanny."""
        slot = hang.running.slot
        asked: Any = self._client.run(is_busy, hang.what, workers=[slot], nanny=True, on_error="ignore")
        try:
            answers: dict[str, bool] = await asyncio.wait_for(asked, NANNY_SECS + WATCH_SECS)
        except (OSError, KeyError):  # KeyError: the Dask worker is gone by now
            return False
        return answers.get(slot, False)


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


def _take(under_way: Future[None]) -> None:
    """Take the result of an inquiry; after a failure a role that still hangs is found again."""
    try:
        under_way.result()
    except Exception as error:  # any error of a nanny
        logger.warning("a Dask worker whose role hangs could not be ended, psflow tries again: %r", error)
