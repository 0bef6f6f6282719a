"""What a run of trials has shown, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from tests.chaos.running import Outcome
from tests.chaos.schedule import possible_cells, uncovered
from tests.chaos.trials import Trial

HEAD = """| seed | trials | kills | recoveries | seconds to recover, median | max | missed their phase | violations |
|---|---|---|---|---|---|---|---|
"""


def report(seed: int, outcomes: Mapping[int, Outcome]) -> str:
    """Return the table, the violations with what replays them, and the cells without a trial.

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
        len(outcomes) - len(hit),
        len(broken),
    )
    lines = [HEAD + f"| {' | '.join(map(str, figures))} |\n"]
    for number, found in broken.items():
        lines.append(f"- `make chaos SEED={seed} TRIAL={number}` ({outcomes[number].trial}): {'; '.join(found)}")
    return "\n".join([*lines, *_without_trial([outcome.trial for outcome in hit])])


def _without_trial(trials: Sequence[Trial]) -> list[str]:
    left = uncovered(trials)
    head = f"\nPairs of values without a trial: {sum(map(len, left.values()))} of {len(possible_cells())}."
    return [head, *(f"- {axes}: {', '.join(names)}" for axes, names in left.items())]
