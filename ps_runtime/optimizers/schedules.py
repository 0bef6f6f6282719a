"""Learning rates that fall with global_step, frozen and picklable for workers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.optimizers.base import Schedule


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """``learning_rate * decay_rate ** (global_step / decay_steps)``.

    Parameters
    ----------
    learning_rate : float
        Rate at step 0, >= 0.
    decay_steps : int
        Steps in which the rate is multiplied by `decay_rate`, > 0.
    decay_rate : float
        The factor, > 0.
    staircase : bool
        Lower the rate once every `decay_steps` instead of a little at each step.

    Examples
    --------
    >>> ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)(20)
    0.025
    """

    learning_rate: Annotated[float, Key("Rate at step 0.", ge=0)]
    decay_steps: Annotated[int, Key("Steps in which the rate is multiplied by decay_rate.", ge=1)]
    decay_rate: Annotated[float, Key("The factor.", gt=0)]
    staircase: Annotated[bool, Key("Whether to lower the rate once every decay_steps only.")] = False

    def __post_init__(self) -> None:
        check(
            self,
            learning_rate=lambda rate: rate >= 0,
            decay_steps=lambda steps: steps > 0,
            decay_rate=lambda rate: rate > 0,
        )
        check_flag(self, "staircase")

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        return float(self.learning_rate * self.decay_rate ** _periods(self, global_step))


@dataclass(frozen=True)
class InverseTimeDecay(Schedule):
    """``learning_rate / (1 + decay_rate * global_step / decay_steps)``.

    Parameters
    ----------
    learning_rate : float
        Rate at step 0, >= 0.
    decay_steps : int
        Steps in which the divisor grows by `decay_rate`, > 0.
    decay_rate : float
        See `decay_steps`; > 0.
    staircase : bool
        Lower the rate once every `decay_steps` instead of a little at each step.

    Examples
    --------
    >>> InverseTimeDecay(0.1, decay_steps=10, decay_rate=1.0)(10)
    0.05
    """

    learning_rate: Annotated[float, Key("Rate at step 0.", ge=0)]
    decay_steps: Annotated[int, Key("Steps in which the divisor grows by decay_rate.", ge=1)]
    decay_rate: Annotated[float, Key("Growth of the divisor.", gt=0)]
    staircase: Annotated[bool, Key("Whether to lower the rate once every decay_steps only.")] = False

    def __post_init__(self) -> None:
        check(
            self,
            learning_rate=lambda rate: rate >= 0,
            decay_steps=lambda steps: steps > 0,
            decay_rate=lambda rate: rate > 0,
        )
        check_flag(self, "staircase")

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        return float(self.learning_rate / (1.0 + self.decay_rate * _periods(self, global_step)))


@dataclass(frozen=True)
class NaturalExpDecay(Schedule):
    """``learning_rate * exp(-decay_rate * global_step / decay_steps)``.

    Parameters
    ----------
    learning_rate : float
        Rate at step 0, >= 0.
    decay_steps : int
        Steps in which the rate is multiplied by ``exp(-decay_rate)``, > 0.
    decay_rate : float
        See `decay_steps`; > 0.
    staircase : bool
        Lower the rate once every `decay_steps` instead of a little at each step.

    Examples
    --------
    >>> round(NaturalExpDecay(0.1, decay_steps=10, decay_rate=0.5)(20), 4)
    0.0368
    """

    learning_rate: Annotated[float, Key("Rate at step 0.", ge=0)]
    decay_steps: Annotated[int, Key("Steps in which the rate falls by exp(-decay_rate).", ge=1)]
    decay_rate: Annotated[float, Key("Exponent of the fall.", gt=0)]
    staircase: Annotated[bool, Key("Whether to lower the rate once every decay_steps only.")] = False

    def __post_init__(self) -> None:
        check(
            self,
            learning_rate=lambda rate: rate >= 0,
            decay_steps=lambda steps: steps > 0,
            decay_rate=lambda rate: rate > 0,
        )
        check_flag(self, "staircase")

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        return float(self.learning_rate * math.exp(-self.decay_rate * _periods(self, global_step)))


@dataclass(frozen=True)
class PolynomialDecay(Schedule):
    """``(learning_rate - end_learning_rate) * (1 - t) ** power + end_learning_rate`` with ``t = step / decay_steps``.

    Parameters
    ----------
    learning_rate : float
        Rate at step 0, >= 0.
    decay_steps : int
        Steps until `end_learning_rate` is reached, > 0; it is constant from there.
    end_learning_rate : float
        Last rate, >= 0.
    power : float
        Exponent, > 0; 1 for a straight line.
    cycle : bool
        Stretch `decay_steps` to the next multiple of itself instead of staying at the end.

    Examples
    --------
    >>> PolynomialDecay(0.1, decay_steps=10, end_learning_rate=0.0)(5)
    0.05
    """

    learning_rate: Annotated[float, Key("Rate at step 0.", ge=0)]
    decay_steps: Annotated[int, Key("Steps until end_learning_rate.", ge=1)]
    end_learning_rate: Annotated[float, Key("Last rate.", ge=0)] = 0.0001
    power: Annotated[float, Key("Exponent; 1 for a straight line.", gt=0)] = 1.0
    cycle: Annotated[bool, Key("Whether to rise again after decay_steps, for a longer fall.")] = False

    def __post_init__(self) -> None:
        check(
            self,
            learning_rate=lambda rate: rate >= 0,
            decay_steps=lambda steps: steps > 0,
            end_learning_rate=lambda rate: rate >= 0,
            power=lambda power: power > 0,
        )
        check_flag(self, "cycle")

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        if self.cycle:
            share = global_step / (self.decay_steps * max(1, math.ceil(global_step / self.decay_steps)))
        else:
            share = min(global_step / self.decay_steps, 1.0)
        return float(
            (self.learning_rate - self.end_learning_rate) * (1.0 - share) ** self.power + self.end_learning_rate
        )


@dataclass(frozen=True)
class PiecewiseConstant(Schedule):
    """``values[i]`` up to and including step ``boundaries[i]``, the last value after the last boundary.

    Parameters
    ----------
    boundaries : tuple of int
        Steps, strictly increasing.
    values : tuple of float
        Rates, each >= 0; one more than `boundaries`.

    Examples
    --------
    >>> rate = PiecewiseConstant((100, 200), (0.1, 0.01, 0.001))
    >>> rate(100), rate(101), rate(1000)
    (0.1, 0.01, 0.001)
    """

    boundaries: Annotated[tuple[int, ...], Key("Last steps of the values but the last one, increasing.")]
    values: Annotated[tuple[float, ...], Key("Rates, one more than boundaries.")]

    def __post_init__(self) -> None:
        for name in ("boundaries", "values"):
            given = getattr(self, name)
            if not isinstance(given, Sequence | np.ndarray) or not all(map(is_number, given)):
                raise UsageError((_fault(self, name),))
            object.__setattr__(self, name, tuple(given))
        are_fit = {
            "boundaries": all(a < b for a, b in pairwise(self.boundaries)),
            "values": len(self.values) == len(self.boundaries) + 1 and all(value >= 0 for value in self.values),
        }
        if faults := tuple(_fault(self, name) for name, fit in are_fit.items() if not fit):
            raise UsageError(faults)

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        return float(self.values[bisect_left(self.boundaries, global_step)])


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """``learning_rate * ((1 - alpha) * (1 + cos(pi * t)) / 2 + alpha)`` with ``t = min(step / decay_steps, 1)``.

    Parameters
    ----------
    learning_rate : float
        Rate at step 0, >= 0.
    decay_steps : int
        Steps until the end of the half wave, > 0; the rate is constant from there.
    alpha : float
        Last rate as a share of the first, in [0, 1].

    References
    ----------
    Loshchilov, Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2016.

    Examples
    --------
    >>> CosineDecay(0.1, decay_steps=10)(10)
    0.0
    """

    learning_rate: Annotated[float, Key("Rate at step 0.", ge=0)]
    decay_steps: Annotated[int, Key("Steps until the end of the half wave.", ge=1)]
    alpha: Annotated[float, Key("Last rate as a share of the first.", ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        check(
            self,
            learning_rate=lambda rate: rate >= 0,
            decay_steps=lambda steps: steps > 0,
            alpha=lambda share: 0 <= share <= 1,
        )

    def __call__(self, global_step: int) -> float:
        """Return the learning rate at `global_step`."""
        wave = 0.5 * (1.0 + math.cos(math.pi * min(global_step / self.decay_steps, 1.0)))
        return float(self.learning_rate * ((1.0 - self.alpha) * wave + self.alpha))


def _periods(schedule: ExponentialDecay | InverseTimeDecay | NaturalExpDecay, global_step: int) -> float:
    """Return how often `decay_steps` have passed; with a staircase, as a whole number."""
    steps = schedule.decay_steps
    return global_step // steps if schedule.staircase else global_step / steps


_EXPECTED = {
    "peak": "a number >= 0",
    "start": "a number >= 0",
    "start_factor": "a number in [0, 1]",
    "warmup_steps": "a number of steps >= 0",
    "total_steps": "a number of steps > 1",
    "warmup_share": "a number between 0 and 1",
    "start_divisor": "a number > 0",
    "end_divisor": "a number > 0",
    "first_decay_steps": "a number of steps > 0",
    "t_mul": "a number >= 1",
    "m_mul": "a number >= 0",
    "factor": "a number between 0 and 1",
    "patience": "a number of evaluations >= 0",
    "threshold": "a number >= 0",
    "cooldown": "a number of evaluations >= 0",
    "min_learning_rate": "a number >= 0",
    "learning_rate": "a number >= 0",
    "end_learning_rate": "a number >= 0",
    "decay_steps": "a number of steps > 0",
    "decay_rate": "a number > 0",
    "power": "a number > 0",
    "alpha": "a number in [0, 1]",
    "boundaries": "strictly increasing steps",
    "values": "rates >= 0, one more than there are boundaries",
}


def check(schedule: object, **fits: Callable[[float], bool]) -> None:
    """Refuse attributes that are not numbers, or are outside their range."""
    given = {name: getattr(schedule, name) for name in fits}
    faults = tuple(
        _fault(schedule, name) for name, value in given.items() if not (is_number(value) and fits[name](value))
    )
    if faults:
        raise UsageError(faults)


def check_flag(schedule: object, name: str) -> None:
    """Refuse an attribute that is neither True nor False."""
    if not isinstance(getattr(schedule, name), bool):
        raise UsageError((f"{type(schedule).__name__}: {name} is {getattr(schedule, name)!r}, expected True or False",))


def _fault(schedule: object, name: str) -> str:
    return f"{type(schedule).__name__}: {name} is {getattr(schedule, name)!r}, expected {_EXPECTED[name]}"
