"""Which trials a seed gives, in which order: rounds, each with every possible pair of values at least once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import combinations, islice

from tests.chaos.trials import AXES, Fault, Input, Parameters, Phase, Target, Trial, Update, name_of

PLAIN = Trial(Target.CHIEF, Phase.START, Fault.KILL, Update.ASYNC, 2, Parameters.DENSE, 0, Input.DEALT)
"""A trial that forbids no value of any axis."""
Cell = tuple[tuple[str, object], tuple[str, object]]
"""Two axes, and a value of each."""
NUM_CANDIDATES = 30
"""Of which the one with the most new cells is the next trial."""


def cells(trial: Trial) -> frozenset[Cell]:
    """Return the pairs of values that a trial covers."""
    return frozenset(combinations(((axis, getattr(trial, axis)) for axis in AXES), 2))


@cache
def possible_cells() -> frozenset[Cell]:
    """Return the pairs of values that some trial covers."""
    values = [(axis, value) for axis, known in AXES.items() for value in known]
    pairs = ((one, other) for one, other in combinations(values, 2) if one[0] != other[0])
    return frozenset(pair for pair in pairs if replace(PLAIN, **dict(pair)).is_possible)


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
        candidates = islice(_with_cell(draw, wanted), NUM_CANDIDATES)
        trial = max(candidates, key=lambda candidate: len(cells(candidate) & left))
        left -= cells(trial)
        yield trial


def _with_cell(draw: random.Random, cell: Cell) -> Iterator[Trial]:
    while True:
        values = {axis: draw.choice(known) for axis, known in AXES.items()}
        if (trial := Trial(**(values | dict(cell)))).is_possible:
            yield trial
