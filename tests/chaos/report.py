"""What a run of trials has shown, in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from tests.chaos.outcome import Outcome
from tests.chaos.schedule import Cell, all_cells, by_axes, possible_cells, uncovered

HEAD = """\
| seed | trials | kills | recoveries | seconds to recover, median | max | steps lost | missed phase | violations |
|---|---|---|---|---|---|---|---|---|
"""


def report(seed: int, outcomes: Mapping[int, Outcome]) -> str:
    """Return the table, the violations with what replays them, the cells without a trial, and the impossible ones.

    Parameters
    ----------
    seed : int
        Of the schedule.
    outcomes : mapping of int to Outcome
        By the number of the trial.
    """
    hit = [outcome for outcome in outcomes.values() if outcome.has_hit]
    secs = [secs for outcome in hit for secs in outcome.recovery_secs]
    broken = {number: outcome.violations for number, outcome in outcomes.items() if outcome.violations}
    figures = (
        seed,
        len(hit),
        sum(outcome.num_kills for outcome in hit),
        len(secs),
        f"{median(secs):.2f}" if secs else "",
        f"{max(secs):.2f}" if secs else "",
        sum(outcome.num_lost_steps for outcome in hit),
        len(outcomes) - len(hit),
        len(broken),
    )
    lines = [HEAD + f"| {' | '.join(map(str, figures))} |\n"]
    for number, found in broken.items():
        lines.append(f"- `make chaos SEED={seed} TRIAL={number}` ({outcomes[number].trial}): {'; '.join(found)}")
    left, impossible = uncovered(outcome.trial for outcome in hit), all_cells() - possible_cells()
    lines += [f"\nPairs of values without a trial: {len(left)} of {len(possible_cells())}.", *_listed(left)]
    lines += [f"\nPairs of values that no trial can have: {len(impossible)}.", *_listed(impossible)]
    return "\n".join(lines)


def _listed(found: Iterable[Cell]) -> list[str]:
    return [f"- {axes}: {', '.join(names)}" for axes, names in by_axes(found).items()]
