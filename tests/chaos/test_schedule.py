"""The schedule of trials: the same for the same seed, and no possible pair of values left out."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from tests.chaos.schedule import all_cells, by_axes, cells, possible_cells, schedule, trial_at, uncovered
from tests.chaos.trials import (
    AXES,
    DISK_ERRORS,
    Fault,
    Input,
    Parameters,
    Phase,
    Target,
    Transport,
    Trial,
    Update,
    name_of,
    trial_of,
)

ROUND = 210
"""A round takes fewer trials than this."""
PLAIN = Trial(
    Target.CHIEF, Phase.START, Fault.KILL, Update.ASYNC, 2, Parameters.DENSE, 0, Input.DEALT, Transport.SHARED_MEMORY
)


def test_a_seed_gives_the_same_trials_each_time_and_another_one_others() -> None:
    first = list(islice(schedule(1), 10))
    assert first == list(islice(schedule(1), 10))
    assert first != list(islice(schedule(2), 10))
    assert [trial_at(1, 1), trial_at(1, 10)] == [first[0], first[9]]


def test_a_round_covers_each_possible_pair() -> None:
    trials = list(islice(schedule(3), ROUND))
    assert all(trial.is_possible for trial in trials)
    assert uncovered(trials) == frozenset()
    # no fewer trials can have each target in each phase
    assert len(uncovered(trials[: len(Target) * len(Phase) - 4])) > 0


def test_what_is_uncovered_is_named() -> None:
    assert uncovered([]) == possible_cells()
    trial = trial_at(1, 1)
    assert uncovered([trial]) == possible_cells() - cells(trial)
    names = by_axes(cells(trial))
    assert names["target x phase"] == [f"{name_of(trial.target)}/{name_of(trial.phase)}"]
    assert sum(map(len, names.values())) == len(cells(trial))


@pytest.mark.parametrize(
    ("changed", "is_possible"),
    [
        ({"target": Target.PS_1, "num_ps": 1}, False),
        ({"target": Target.PS_1}, True),
        ({"update": Update.SYNC, "pipeline_depth": 1}, False),
        ({"fault": Fault.REPEAT}, True),
        ({"fault": Fault.REPEAT, "phase": Phase.FINISH}, True),
        ({"target": Target.WORKER_0, "fault": Fault.REPEAT, "phase": Phase.FINISH}, False),
        ({"target": Target.PS_AND_WORKER, "fault": Fault.REPEAT}, False),
        ({"target": Target.PS_AND_WORKER, "fault": Fault.DISCONNECT}, True),
        ({"target": Target.SCHEDULER}, True),
        ({"target": Target.SCHEDULER, "fault": Fault.DISCONNECT}, False),
        ({"target": Target.DISK}, False),
        ({"target": Target.DISK, "fault": Fault.FULL_DISK}, True),
        ({"target": Target.MLFLOW, "phase": Phase.EXPORT}, False),
    ],
)
def test_some_faults_are_not_for_all_targets(changed: dict[str, Any], is_possible: bool) -> None:
    assert replace(PLAIN, **changed).is_possible is is_possible


def test_impossible_pairs_are_known_as_such() -> None:
    impossible = by_axes(all_cells() - possible_cells())
    assert impossible["target x num_ps"] == ["ps_1/1", "ps_and_chief/1"]
    assert impossible["update x pipeline_depth"] == ["sync/1"]
    assert impossible["target x phase"] == ["mlflow/export", "prefect/export"]
    with_disk = [pair for pair in impossible["target x fault"] if pair.startswith("disk/")]
    assert with_disk == sorted(f"disk/{name_of(fault)}" for fault in set(Fault) - set(DISK_ERRORS))


@pytest.mark.parametrize(
    ("target", "fault", "loses", "rolls_back", "ends_job"),
    [
        (Target.WORKER_AND_EVALUATOR, Fault.KILL, True, False, False),
        (Target.WORKER_AND_EVALUATOR, Fault.TERM, False, False, False),
        (Target.CHIEF, Fault.KILL, True, False, False),
        (Target.PS_AND_CHIEF, Fault.KILL, True, True, False),
        (Target.PS_1, Fault.KILL, True, True, False),
        (Target.PS_AND_WORKER, Fault.STOP, False, True, False),
        (Target.NANNY, Fault.TERM, True, False, False),
        (Target.NANNY, Fault.LONG_STOP, False, False, False),
        (Target.SCHEDULER, Fault.TERM, False, False, True),
        (Target.FLOW, Fault.LONG_STOP, False, False, False),
        (Target.DISK, Fault.READ_ONLY_DISK, False, False, True),
    ],
)
def test_what_follows_depends_on_the_target_and_the_fault(
    target: Target, fault: Fault, loses: bool, rolls_back: bool, ends_job: bool
) -> None:
    trial = replace(PLAIN, target=target, phase=Phase.CUT, fault=fault)
    assert (trial.loses_roles, trial.rolls_back, trial.ends_job) == (loses, rolls_back, ends_job)


@pytest.mark.parametrize(("phase", "rolls_back"), [(Phase.START, True), (Phase.TRAINING, False), (Phase.FINISH, False)])
def test_with_the_chief_training_goes_back_before_the_first_step_only(phase: Phase, rolls_back: bool) -> None:
    assert replace(PLAIN, target=Target.CHIEF, phase=phase).rolls_back is rolls_back


def test_a_trial_says_all_of_itself() -> None:
    trial = trial_at(1, 1)
    names = dict(part.split("=") for part in str(trial).split(", "))
    assert list(names) == list(AXES)
    assert trial_of(names) == trial
