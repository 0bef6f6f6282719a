"""The schedule of trials: the same for the same seed, and no possible pair of values left out."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, islice

import pytest

from tests.chaos.schedule import PLAIN, cells, possible_cells, schedule, trial_at, uncovered
from tests.chaos.trials import AXES, Fault, Phase, Target, Update, name_of

ROUND = 110
"""A round takes fewer trials than this."""


def test_a_seed_gives_the_same_trials_each_time_and_another_one_others() -> None:
    first = list(islice(schedule(1), 10))
    assert first == list(islice(schedule(1), 10))
    assert first != list(islice(schedule(2), 10))
    assert [trial_at(1, 1), trial_at(1, 10)] == [first[0], first[9]]


def test_a_round_covers_each_possible_pair() -> None:
    trials = list(islice(schedule(3), ROUND))
    assert uncovered(trials) == {}
    assert (
        len(uncovered(trials[: len(Target) * len(Phase) - 1])) > 0
    )  # no fewer trials can have each target in each phase


def test_what_is_uncovered_is_named() -> None:
    assert sum(map(len, uncovered([]).values())) == len(possible_cells())
    trial = trial_at(1, 1)
    left = {(axes, pair) for axes, pairs in uncovered([trial]).items() for pair in pairs}
    for (axis, value), (other_axis, other) in cells(trial):
        assert (f"{axis} x {other_axis}", f"{name_of(value)}/{name_of(other)}") not in left
    assert len(left) == len(possible_cells()) - len(cells(trial))


def test_impossible_jobs_are_no_trials() -> None:
    trials = list(islice(schedule(4), 2 * ROUND))
    assert {trial.num_ps for trial in trials if trial.target is Target.PS_1} == {2}
    assert {trial.pipeline_depth for trial in trials if trial.update is Update.SYNC} == {0}
    pairs = list(combinations(AXES.values(), 2))
    num_impossible = 3  # ps-1 of one ps, alone and with the chief; sync ahead of its step
    assert len(possible_cells()) == sum(len(one) * len(other) for one, other in pairs) - num_impossible


@pytest.mark.parametrize(
    ("target", "fault", "loses", "goes_back"),
    [
        (Target.WORKER_AND_EVALUATOR, Fault.KILL, True, False),
        (Target.WORKER_AND_EVALUATOR, Fault.TERM, False, False),
        (Target.CHIEF, Fault.KILL, True, True),
        (Target.PS_1, Fault.KILL, True, True),
        (Target.PS_AND_WORKER, Fault.STOP, False, True),
    ],
)
def test_what_follows_depends_on_the_role_and_the_fault(
    target: Target, fault: Fault, loses: bool, goes_back: bool
) -> None:
    trial = replace(PLAIN, target=target, fault=fault)
    assert (trial.loses_roles, trial.target.goes_back) == (loses, goes_back)


def test_a_trial_says_all_of_itself() -> None:
    text = str(trial_at(1, 1))
    assert [part.partition("=")[0] for part in text.split(", ")] == list(AXES)
