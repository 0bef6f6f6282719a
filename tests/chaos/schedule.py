"""Which trials a seed gives, in which order: rounds, each with every possible pair of values at least once."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations, islice, product

from tests.chaos.trials import AXES, Trial, name_of

Cell = tuple[tuple[str, object], tuple[str, object]]
"""Two axes, and a value of each."""
BINDING = ("target", "phase", "fault", "update", "num_ps", "pipeline_depth")
"""The axes of which a value may be impossible beside one of another axis."""
NUM_CANDIDATES = 30
"""Of which the one with the most new cells is the next trial."""


def cells(trial: Trial) -> frozenset[Cell]:
    """Return the pairs of values that a trial covers."""
    return frozenset(combinations(((axis, getattr(trial, axis)) for axis in AXES), 2))


def all_cells() -> frozenset[Cell]:
    """Return the pairs of values of different axes."""
    values = [(axis, value) for axis, known in AXES.items() for value in known]
    return frozenset((one, other) for one, other in combinations(values, 2) if one[0] != other[0])


@cache
def possible_cells() -> frozenset[Cell]:
    """Return the pairs of values that some trial covers."""
    return frozenset(cell for cell in all_cells() if any(trial.is_possible for trial in _completed(cell)))


def _completed(cell: Cell) -> Iterator[Trial]:
    """Yield a trial with a cell for each choice of other values that may make it possible, or not."""
    known = {axis: values if axis in BINDING else values[:1] for axis, values in AXES.items()}
    known |= {axis: (value,) for axis, value in cell}
    return (Trial(*values) for values in product(*known.values()))


def schedule(seed: int) -> Iterator[Trial]:
    """Yield trials without end; the same ones for the same seed."""
    draw = random.Random(seed)
    while True:
        yield from _round(draw)


def trial_at(seed: int, number: int) -> Trial:
    """Return the trial of a number, counted from 1."""
    return next(islice(schedule(seed), number - 1, None))


def uncovered(trials: Iterable[Trial]) -> frozenset[Cell]:
    """Return the cells that none of the trials covers, though one could."""
    return possible_cells().difference(*map(cells, trials))


def by_axes(found: Iterable[Cell]) -> dict[str, list[str]]:
    """Return cells as people read them: by their two axes."""
    names: dict[str, list[str]] = {}
    for (axis, value), (other_axis, other) in found:
        names.setdefault(f"{axis} x {other_axis}", []).append(f"{name_of(value)}/{name_of(other)}")
    return {axes: sorted(pairs) for axes, pairs in sorted(names.items())}


def _round(draw: random.Random) -> Iterator[Trial]:
    left = set(possible_cells())
    ordered = sorted(left, key=repr)
    while ordered:
        wanted = draw.choice(ordered)
        candidates = islice(_with_cell(draw, wanted), NUM_CANDIDATES)
        trial = max(candidates, key=lambda candidate: len(cells(candidate) & left))
        left -= cells(trial)
        ordered = [cell for cell in ordered if cell in left]
        yield trial


def _with_cell(draw: random.Random, cell: Cell) -> Iterator[Trial]:
    while True:
        values = {axis: draw.choice(known) for axis, known in AXES.items()}
        if (trial := Trial(**(values | dict(cell)))).is_possible:
            yield trial
