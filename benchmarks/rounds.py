"""Systems in turn: each works for a moment while the others are held, round after round."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.rows import Samples
from benchmarks.systems.base import System
from ps_runtime.errors import WaitTimeoutError

__all__ = ["Slice", "alternate", "order_of_round", "samples_of"]

SETTLE_SECS = 0.2
"""At the start of a slice: caches fill, requests that were under way come to their end; not measured."""
TELL_SECS = 0.15
"""Until the reports of a slice are here."""


class Slice(NamedTuple):
    """What one system did in its turn."""

    steps_per_sec: float
    cpu_secs_per_step: float


def alternate(systems: Sequence[System], num_rounds: int, slice_secs: float) -> dict[str, list[Slice]]:
    """Start `systems`, measure them in turn, end them; return the slices of each by its name, a slice a round.

    A window of measurement begins 0.2 s after a system goes on and ends when it is held; its rate is that between the
    first and the last report of progress in that window.

    Parameters
    ----------
    systems : sequence of System
        Started in this order, one after the other.
    num_rounds : int
    slice_secs : float
        Length of a window.

    Raises
    ------
    WaitTimeoutError
        If a system reported not even twice in a window.
    """
    slices: dict[str, list[Slice]] = {system.name: [] for system in systems}
    with ExitStack() as stack:
        for system in systems:
            stack.callback(system.close)
            system.start()
        for number in range(num_rounds):
            for system in order_of_round(systems, number):
                slices[system.name].append(_measured(system, slice_secs))
    return slices


def order_of_round(systems: Sequence[System], number: int) -> list[System]:
    """Return the order of a round: each begins with another system, so that none always follows the same one."""
    start = number % len(systems)
    return [*systems[start:], *systems[:start]]


def samples_of(slices: Mapping[str, Sequence[Slice]], name: str) -> Samples | None:
    """Return the slices of one system as samples; None if it did not take part."""
    if name not in slices:
        return None
    return Samples([s.steps_per_sec for s in slices[name]], [s.cpu_secs_per_step for s in slices[name]])


def _measured(system: System, secs: float) -> Slice:
    system.let_go()
    try:
        time.sleep(SETTLE_SECS)
        used, start = system.cpu_secs(), time.monotonic()
        time.sleep(secs)
        used, stop = system.cpu_secs() - used, time.monotonic()
        system.hold()
        time.sleep(TELL_SECS)
        system.check()
    except BaseException:
        system.hold()
        raise
    rate = system.progress.rate(start, stop)
    if not rate:
        raise WaitTimeoutError("to report its progress twice", system.name, secs)
    return Slice(rate, used / (stop - start) / rate)
