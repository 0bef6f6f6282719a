"""Alternating measurement: each system works for a moment while the others are held, round after round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, TypeVar

from benchmarks.rows import Samples
from benchmarks.systems.base import System
from psflow.ps_runtime.errors import WaitTimeoutError

__all__ = ["Slice", "alternate", "at_work", "order_of_round", "samples_of", "step_rate"]

T = TypeVar("T")

SETTLE_SECS = 0.2
"""At the start of a slice: caches fill and pending requests end; not measured."""
TELL_SECS = 0.15
"""Until the reports of a slice are here."""
TIMEOUT_SECS = 60.0
"""Of a slice, for a system that reports too seldom."""


class Slice(NamedTuple):
    """What one system did in its turn."""

    steps_per_sec: float
    cpu_secs_per_step: float


def alternate(systems: Sequence[System], num_rounds: int, measure: Callable[[System], T]) -> dict[str, list[T]]:
    """Start `systems`, measure them in turn, end them; return what was measured of each by its name, once a round.

    Parameters
    ----------
    systems : sequence of System
        Started in this order, one after the other.
    num_rounds : int
        Measurements of each system.
    measure : callable
        Takes a system that is held, and leaves it held; such as `step_rate`.
    """
    measured: dict[str, list[T]] = {system.name: [] for system in systems}
    with ExitStack() as stack:
        for system in systems:
            stack.callback(system.close)
            system.start()
        for number in range(num_rounds):
            for system in order_of_round(systems, number):
                measured[system.name].append(measure(system))
    return measured


def order_of_round(systems: Sequence[System], number: int) -> list[System]:
    """Return the order of a round: each starts with another system, so that none always follows the same one."""
    start = number % len(systems)
    return [*systems[start:], *systems[:start]]


def samples_of(slices: Mapping[str, Sequence[Slice]], name: str) -> Samples | None:
    """Return the slices of one system as samples; None if it did not take part."""
    if name not in slices:
        return None
    return Samples([s.steps_per_sec for s in slices[name]], [s.cpu_secs_per_step for s in slices[name]])


def step_rate(system: System, secs: float) -> Slice:
    """Let a system work for a while; return how fast it was.

    The window of measurement starts 0.2 s after the system resumes and ends `secs` later; its rate is that between the
    first and the last report of progress in that window. One that is too slow for that gets more windows, up to a
    minute.

    Raises
    ------
    WaitTimeoutError
        If the system reported not even twice in all that time.
    """
    with at_work(system):
        time.sleep(SETTLE_SECS)
        used_before, start = system.cpu_secs(), time.monotonic()
        stop = start
        while not system.progress.rate(start, stop) and stop - start < TIMEOUT_SECS:
            time.sleep(secs)
            used, stop = system.cpu_secs() - used_before, time.monotonic()
            system.check()
    time.sleep(TELL_SECS)
    system.check()
    rate = system.progress.rate(start, stop)
    if not rate:
        raise WaitTimeoutError(system.name, "report its progress twice", TIMEOUT_SECS)
    return Slice(rate, used / (stop - start) / rate)


@contextmanager
def at_work(system: System) -> Iterator[None]:
    """Let a held system work for the time of a ``with`` block."""
    system.let_go()
    try:
        yield
    finally:
        system.hold()
