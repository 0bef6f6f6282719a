"""Which trials a seed gives, in which order: rounds, each with every possible pair of values at least once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations, islice, product

from tests.chaos.trials import AXES, Trial, name_of

Cell = tuple[tuple[str, object], tuple[str, object]]
"""Two axes, and a value of each."""
NUM_CANDIDATES = 30
"""Of which the one with the most new cells is the next trial."""


@cache
def possible_trials() -> tuple[Trial, ...]:
    """Return all that can be."""
    return tuple(trial for values in product(*AXES.values()) if (trial := Trial(*values)).is_possible)


def cells(trial: Trial) -> frozenset[Cell]:
    """Return the pairs of values that a trial covers."""
    return frozenset(combinations(((axis, getattr(trial, axis)) for axis in AXES), 2))


@cache
def possible_cells() -> frozenset[Cell]:
    """Return the pairs of values that some trial covers."""
    return frozenset().union(*map(cells, possible_trials()))


def schedule(seed: int) -> Iterator[Trial]:
    """Yield trials without end; the same ones for the same seed."""
    draw = random.Random(seed)
    while True:
        yield from _round(draw)


def trial_at(seed: int, number: int) -> Trial:
    """Return the trial of a number, counted from 1."""
    return next(islice(schedule(seed), number - 1, None))


def uncovered(trials: Iterable[Trial]) -> dict[str, list[str]]:
    """Return the cells that none of the trials covers, by their two axes."""
    left: dict[str, list[str]] = {}
    for (axis, value), (other_axis, other) in possible_cells().difference(*map(cells, trials)):
        left.setdefault(f"{axis} x {other_axis}", []).append(f"{name_of(value)}/{name_of(other)}")
    return {axes: sorted(names) for axes, names in sorted(left.items())}


def _round(draw: random.Random) -> Iterator[Trial]:
    left = set(possible_cells())
    while left:
        wanted = draw.choice(sorted(left, key=repr))
        fitting = [trial for trial in possible_trials() if _has(trial, wanted)]
        trial = max(draw.choices(fitting, k=NUM_CANDIDATES), key=lambda candidate: len(cells(candidate) & left))
        left -= cells(trial)
        yield trial


def _has(trial: Trial, cell: Cell) -> bool:
    return all(getattr(trial, axis) == value for axis, value in cell)
