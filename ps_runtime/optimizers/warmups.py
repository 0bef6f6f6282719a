"""Learning rates that rise at first, or again, and schedules one after the other."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.optimizers.base import EvaluatedSchedule, Schedule
from psflow.ps_runtime.optimizers.schedules import check


@dataclass(frozen=True)
class WarmupCosine(Schedule):
    """A straight line from `start` to `peak`, then half a wave of the cosine.

    Parameters
    ----------
    peak : float
        Highest rate, >= 0.
    warmup_steps : int
        Steps until `peak`, >= 0.
    decay_steps : int
        Steps until the end of the half wave, with those of the line, > `warmup_steps`; the rate is constant from there.
    start : float
        Rate at step 0, >= 0.
    alpha : float
        Last rate as a share of `peak`, in [0, 1].

    Examples
    --------
    >>> rate = WarmupCosine(0.1, warmup_steps=10, decay_steps=30)
    >>> rate(0), rate(5), rate(10), rate(20), rate(30)
    (0.0, 0.05, 0.1, 0.05, 0.0)
    """

    peak: Annotated[float, Key("Highest rate.", ge=0)]
    warmup_steps: Annotated[int, Key("Steps of the rise to the peak.", ge=0)]
    decay_steps: Annotated[int, Key("Steps until the end of the fall, with those of the rise.", ge=1)]
    start: Annotated[float, Key("Rate at step 0.", ge=0)] = 0.0
    alpha: Annotated[float, Key("Last rate as a share of the peak.", ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        check(
            self,
            peak=lambda rate: rate >= 0,
            warmup_steps=lambda steps: steps >= 0,
            decay_steps=lambda steps: steps > 0,
            start=lambda rate: rate >= 0,
            alpha=lambda share: 0 <= share <= 1,
        )
        if self.decay_steps <= self.warmup_steps:
            raise UsageError(
                (
                    f"WarmupCosine: decay_steps is {self.decay_steps}, expected more than warmup_steps, "
                    f"{self.warmup_steps}, which it includes",
                )
            )

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        if global_step < self.warmup_steps:
            return float(self.start + (self.peak - self.start) * global_step / self.warmup_steps)
        share = min((global_step - self.warmup_steps) / (self.decay_steps - self.warmup_steps), 1.0)
        return _cosine(self.peak, self.alpha * self.peak, share)


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Two half waves of the cosine: from a low rate to `peak`, and to a much lower one.

    Parameters
    ----------
    peak : float
        Highest rate, >= 0.
    total_steps : int
        Steps of both, > 1; the rate is constant from there.
    warmup_share : float
        Share of the steps until the peak, between 0 and 1.
    start_divisor : float
        The first rate is ``peak / start_divisor``, > 0.
    end_divisor : float
        The last rate is the first divided by `end_divisor`, > 0.

    Notes
    -----
    As ``torch.optim.lr_scheduler.OneCycleLR`` with its defaults, without its change of momentum.

    References
    ----------
    Smith, Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2017.
    """

    peak: Annotated[float, Key("Highest rate.", ge=0)]
    total_steps: Annotated[int, Key("Steps of the rise and of the fall.", ge=2)]
    warmup_share: Annotated[float, Key("Share of the steps until the peak.", gt=0, lt=1)] = 0.3
    start_divisor: Annotated[float, Key("Divides the peak for the first rate.", gt=0)] = 25.0
    end_divisor: Annotated[float, Key("Divides the first rate for the last one.", gt=0)] = 10_000.0

    def __post_init__(self) -> None:
        check(
            self,
            peak=lambda rate: rate >= 0,
            total_steps=lambda steps: steps > 1,
            warmup_share=lambda share: 0 < share < 1,
            start_divisor=lambda divisor: divisor > 0,
            end_divisor=lambda divisor: divisor > 0,
        )

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        first, last = self.peak / self.start_divisor, self.total_steps - 1
        top = self.warmup_share * self.total_steps - 1
        if global_step <= top:
            return _cosine(first, self.peak, global_step / top if top > 0 else 1.0)
        return _cosine(self.peak, first / self.end_divisor, min((global_step - top) / (last - top), 1.0))


@dataclass(frozen=True)
class CosineDecayRestarts(Schedule):
    """Half waves of the cosine, one after the other.

    Parameters
    ----------
    learning_rate : float
        Rate at step 0, >= 0.
    first_decay_steps : int
        Length of the first half wave, > 0.
    t_mul : float
        Each is longer by this factor than the one before, >= 1.
    m_mul : float
        Each starts at this share of the start of the one before, >= 0.
    alpha : float
        Lowest rate as a share of the first, in [0, 1].

    References
    ----------
    Loshchilov, Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2016.

    Examples
    --------
    >>> rate = CosineDecayRestarts(0.1, first_decay_steps=10)
    >>> rate(0), rate(5), rate(10), rate(20), rate(30)
    (0.1, 0.05, 0.1, 0.05, 0.1)
    """

    learning_rate: Annotated[float, Key("Rate at step 0.", ge=0)]
    first_decay_steps: Annotated[int, Key("Length of the first half wave.", ge=1)]
    t_mul: Annotated[float, Key("Factor by which each is longer than the one before.", ge=1)] = 2.0
    m_mul: Annotated[float, Key("Start of each as a share of the one before.", ge=0)] = 1.0
    alpha: Annotated[float, Key("Lowest rate as a share of the first.", ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        check(
            self,
            learning_rate=lambda rate: rate >= 0,
            first_decay_steps=lambda steps: steps > 0,
            t_mul=lambda factor: factor >= 1,
            m_mul=lambda factor: factor >= 0,
            alpha=lambda share: 0 <= share <= 1,
        )

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        start, length, number = 0.0, float(self.first_decay_steps), 0
        if self.t_mul == 1.0:
            number, start = int(global_step // length), global_step // length * length
        while self.t_mul > 1.0 and global_step >= start + length:
            start, length, number = start + length, length * self.t_mul, number + 1
        wave = 0.5 * self.m_mul**number * (1.0 + math.cos(math.pi * (global_step - start) / length))
        return float(self.learning_rate * ((1.0 - self.alpha) * wave + self.alpha))


@dataclass(frozen=True)
class LinearWarmup(Schedule):
    """A share of another rate that rises to the whole of it.

    Parameters
    ----------
    learning_rate : float or Schedule
        The rate.
    warmup_steps : int
        Steps until the whole of it, >= 0.
    start_factor : float
        Share at step 0, in [0, 1].

    Examples
    --------
    >>> rate = LinearWarmup(0.1, warmup_steps=10)
    >>> rate(0), rate(5), rate(10), rate(1000)
    (0.0, 0.05, 0.1, 0.1)
    """

    learning_rate: Annotated[float | Schedule, Key("The rate: a number, or another schedule.")]
    warmup_steps: Annotated[int, Key("Steps until the whole rate.", ge=0)]
    start_factor: Annotated[float, Key("Share of the rate at step 0.", ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        check(self, warmup_steps=lambda steps: steps >= 0, start_factor=lambda share: 0 <= share <= 1)
        _check_parts(self, self.learning_rate)
        if not callable(self.learning_rate):
            check(self, learning_rate=lambda rate: rate >= 0)

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        rate = self.learning_rate(global_step) if callable(self.learning_rate) else self.learning_rate
        share = min(global_step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        return float(rate * (self.start_factor + (1.0 - self.start_factor) * share))


@dataclass(frozen=True)
class ChainedSchedules(Schedule):
    """Schedules one after the other, each as from step 0.

    Parameters
    ----------
    schedules : sequence of Schedule
        In their order.
    boundaries : sequence of int
        First steps of all but the first, strictly increasing.

    Examples
    --------
    >>> from psflow.ps_runtime.optimizers.schedules import CosineDecay
    >>> rate = ChainedSchedules([LinearWarmup(0.1, 10), CosineDecay(0.1, 20)], [10])
    >>> rate(5), rate(10), rate(20), rate(30)
    (0.05, 0.1, 0.05, 0.0)
    """

    schedules: Annotated[Sequence[Schedule], Key("The schedules, in their order.")]
    boundaries: Annotated[Sequence[int], Key("First steps of all but the first, increasing.")]

    def __post_init__(self) -> None:
        faults = []
        for name in ("schedules", "boundaries"):
            if isinstance(getattr(self, name), Sequence):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if not isinstance(self.schedules, tuple) or not self.schedules or not all(map(callable, self.schedules)):
            faults.append(f"schedules is {self.schedules!r}, expected at least one schedule")
        are_steps = isinstance(self.boundaries, tuple) and all(map(is_number, self.boundaries))
        if not are_steps or not all(a < b for a, b in pairwise((0, *self.boundaries))):
            faults.append(f"boundaries is {self.boundaries!r}, expected strictly increasing steps > 0")
        elif not faults and len(self.schedules) != len(self.boundaries) + 1:
            faults.append(
                f"there are {len(self.schedules)} schedules and {len(self.boundaries)} boundaries, expected one more "
                "schedule than boundaries"
            )
        else:
            _check_parts(self, *self.schedules)
        if faults:
            raise UsageError(tuple(f"ChainedSchedules: {fault}" for fault in faults))

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        index = bisect_right(self.boundaries, global_step)
        return float(self.schedules[index](global_step - (0, *self.boundaries)[index]))


def _check_parts(schedule: Schedule, *parts: object) -> None:
    """Refuse a part that is no function of global_step alone."""
    for part in parts:
        if isinstance(part, EvaluatedSchedule):
            raise UsageError(
                (
                    f"{type(schedule).__name__}: {type(part).__name__} depends on evaluations, and cannot be part of "
                    "another schedule; give it to the optimizer itself",
                )
            )


def _cosine(start: float, end: float, share: float) -> float:
    """Return the rate at a share of the half wave of a cosine from `start` to `end`."""
    return float(end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * share)))
