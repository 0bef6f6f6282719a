"""The oracles find what is wrong: each is shown a job that has gone well, and one that has not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.roles.events import Checkpoint, Event, Metrics, Restored, RoleLost
from tests.chaos.oracles import (
    STEPS,
    num_lost_steps,
    times_used,
    wrong_counts,
    wrong_evaluations,
    wrong_losses,
    wrong_points,
    wrong_reports,
    wrong_runs,
    wrong_ways_back,
)
from tests.chaos.outcome import Outcome
from tests.chaos.program import LOG_STEPS, MAX_STEPS, NUM_RECORDS
from tests.chaos.report import report
from tests.chaos.trials import Fault, Input, Parameters, Phase, Target, Transport, Trial, Update

TRIAL = Trial(
    Target.TWO_WORKERS, Phase.CUT, Fault.KILL, Update.ASYNC, 2, Parameters.ROWS, 0, Input.DEALT, Transport.TCP
)
STEP = 40  # 160 records: one epoch, and 60 of the next one
POSITION = {"num_repeats": 0, "epochs_completed": 1, "used": {"1": [[0, 40], [60, 80]]}}


def rows_of(position: Any, step: int) -> Any:
    return np.append(times_used(Input.DEALT, position), [step, step])


def wrong(position: Any = POSITION, trial: Trial = TRIAL, **changed: Any) -> str:
    variables = {"num_updates_0": np.float32(STEP), "num_updates_1": np.float32(STEP)}
    rows = rows_of(POSITION, STEP)
    for place, value in changed.items():
        if place in variables:
            variables[place] = np.float32(value)
        else:
            rows[int(place.removeprefix("row_"))] = value
    return "; ".join(wrong_counts(trial, STEP, variables, rows, [position]))


def test_a_checkpoint_that_has_counted_everything_once_is_right() -> None:
    assert wrong() == ""
    assert wrong(trial=replace(TRIAL, update=Update.SYNC), row_0=0.5) == ""  # a row counts parts of an update


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"num_updates_1": 41}, r"step 40 has counted {'num_updates_1': 41.0} updates"),
        ({"row_101": 39}, r"the rows of the checkpoint of step 40 have counted \[40, 39\] updates"),
        ({"row_50": 2}, "up to step 40 records were counted"),
        ({"position": POSITION | {"num_repeats": 4}}, "up to step 40 4 records were used twice in an epoch"),
        ({"position": POSITION | {"used": {"1": [[0, 60]]}}}, "up to step 40 records were counted"),
    ],
)
def test_what_a_checkpoint_has_not_counted_once_is_found(changed: dict[str, Any], found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        raise AssertionError(wrong(**changed))


def test_batches_of_a_generator_are_counted_as_its_records() -> None:
    used = times_used(Input.GENERATOR, {"used": {"0": [[0, 26], [49, 50]]}, "epochs_completed": 0})
    assert used.tolist() == [2] * 4 + [1] * (NUM_RECORDS - 8) + [2] * 4


@pytest.mark.parametrize(
    ("steps", "is_right"), [([0, 40], True), ([0], False), ([0, 40, 40], False), ([40, 0], False), ([0, 80], False)]
)
def test_each_checkpoint_is_in_the_record_of_evaluations_once(steps: list[int], is_right: bool) -> None:
    lines = [{"global_step": step, "checkpoint_saved_at": float(step)} for step in steps]
    assert (wrong_evaluations(lines, {0: 0.0, 40: 40.0}) == []) is is_right


@pytest.mark.parametrize(
    ("changed", "exit_of_worker"),
    [({"global_step": MAX_STEPS + 1}, "finished"), ({"repeats": 1}, "finished"), ({"misses": 1}, "finished"), ({}, "")],
)
def test_reports_of_another_end_are_found(changed: dict[str, int], exit_of_worker: str) -> None:
    job = {"global_step": MAX_STEPS, "repeats": 0, "misses": 0}

    def reports(job: dict[str, int], exit_of_worker: str) -> dict[str, Any]:
        return {"chief-0": {"exit": "finished", "statistics": {"job": job}}, "worker-0": {"exit": exit_of_worker}}

    assert list(wrong_reports(reports(job, "finished"))) == []
    assert len(list(wrong_reports(reports(job | changed, exit_of_worker)))) == 1


@pytest.mark.parametrize(
    ("trial", "lost", "is_right"),
    [
        (TRIAL, ["worker-0", "worker-1"], True),
        (TRIAL, ["worker-0"], False),
        (TRIAL, ["worker-0", "worker-0", "worker-1"], False),
        (replace(TRIAL, phase=Phase.FINISH), ["worker-0"], True),  # the other one had left
        (replace(TRIAL, phase=Phase.FINISH), ["chief-0"], False),
        (replace(TRIAL, target=Target.PS_AND_WORKER), ["ps-0"], True),  # which recalls the other one
        (replace(TRIAL, target=Target.PS_AND_WORKER), [], False),
        (replace(TRIAL, fault=Fault.STOP), [], True),
        (replace(TRIAL, fault=Fault.STOP), ["worker-0", "worker-0"], True),
        (replace(TRIAL, fault=Fault.STOP), ["chief-0", "worker-0"], False),
        (replace(TRIAL, fault=Fault.LONG_STOP, target=Target.CHIEF), ["chief-0", "worker-0"], True),
        (replace(TRIAL, fault=Fault.LONG_STOP), ["chief-0"], False),
        (replace(TRIAL, fault=Fault.TERM), ["worker-0"], False),
        (replace(TRIAL, fault=Fault.DISCONNECT), [], True),
        (replace(TRIAL, fault=Fault.REPEAT), ["worker-0"], False),
        (replace(TRIAL, target=Target.NANNY, fault=Fault.TERM), ["worker-0"], True),
        (replace(TRIAL, target=Target.FLOW), [], True),
        (replace(TRIAL, target=Target.FLOW), ["worker-0"], False),
    ],
)
def test_a_killed_role_is_lost_once_and_nobody_else_is(trial: Trial, lost: list[str], is_right: bool) -> None:
    events: list[Event] = [RoleLost("its Dask worker was lost", role=role) for role in lost]
    assert (list(wrong_losses(trial, events)) == []) is is_right


CHIEF_LOST = RoleLost("its Dask worker was lost", rolls_back=False, role="chief-0")


@pytest.mark.parametrize(
    ("target", "phase", "events", "found"),
    [
        (Target.CHIEF, Phase.CUT, [CHIEF_LOST], ""),
        (Target.CHIEF, Phase.CUT, [CHIEF_LOST, Restored(40, 0.1)], r"steps \[40\] were restored, expected none"),
        (Target.CHIEF, Phase.CUT, [replace(CHIEF_LOST, rolls_back=True)], r"reported to go back with \['chief-0'\]"),
        (Target.CHIEF, Phase.START, [replace(CHIEF_LOST, rolls_back=True)], ""),
        (Target.CHIEF, Phase.START, [CHIEF_LOST], "a loss is reported, but not that training goes back with it"),
        (Target.CHIEF, Phase.START, [], ""),  # which another oracle finds
        (Target.PS_AND_CHIEF, Phase.CUT, [CHIEF_LOST, replace(CHIEF_LOST, role="ps-1", rolls_back=True)], ""),
    ],
)
def test_training_goes_back_where_it_must_and_nowhere_else(
    target: Target, phase: Phase, events: list[Event], found: str
) -> None:
    trial = replace(TRIAL, target=target, phase=phase)
    assert re.search(found or "^$", "; ".join(wrong_ways_back(trial, events)))


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, ""),
        ({"loss": [20, 40]}, r"the curve loss has points of steps \[20, 40\], expected"),
        ({"eval/loss": []}, "the curve eval/loss has points of steps"),
        ({"restarts": [3, 3]}, r"the curve restarts has a point twice: \[3, 3\]"),
    ],
)
def test_points_of_curves_are_neither_lost_nor_doubled(changed: dict[str, list[int]], found: str) -> None:
    curves = {"loss": list(range(LOG_STEPS, MAX_STEPS + 1, LOG_STEPS)), "eval/loss": STEPS}
    said = "; ".join(wrong_points(curves | changed))
    assert re.match(found, said)
    assert bool(said) is bool(found)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, r"$"),
        ({"trial to 200": "RUNNING"}, r"the flow run trial to 200 is RUNNING in Prefect, expected COMPLETED$"),
        ({"ps-1": "PENDING"}, r"the task run ps-1 is PENDING in Prefect"),
        ({"worker-0": "COMPLETED"}, r"Prefect knows the runs \[.*'train', 'worker-0'\], expected \["),
    ],
)
def test_a_run_that_is_not_complete_in_prefect_is_found(changed: dict[str, str], found: str) -> None:
    names = ("trial to 200", "chief-0", "evaluator-0", "ps-0", "ps-1")
    states = dict.fromkeys(names, "COMPLETED") | changed
    runs = [("flow run" if name == names[0] else "task run", name, state) for name, state in states.items()]
    assert re.match(found, "; ".join(wrong_runs(runs, num_ps=2)))
    assert "knows the runs" in "; ".join(wrong_runs(runs[1:], num_ps=2))


def test_lost_steps_are_those_that_were_made_before_training_went_back() -> None:
    events = [
        Restored(0, 0.1),
        Metrics(35, {}),
        Checkpoint(40, ""),
        Metrics(55, {}),
        Restored(40, 0.1),
        Metrics(60, {}),
    ]
    assert num_lost_steps(events) == 15
    assert num_lost_steps([*events, Restored(60, 0.1)]) == 15


def test_a_report_counts_the_trials_that_hit_and_says_how_to_replay_a_violation() -> None:
    held = Outcome(TRIAL, has_hit=True, num_kills=2, recovery_secs=[1.0, 3.0], num_lost_steps=7)
    broken = Outcome(TRIAL, has_hit=True, num_kills=2, recovery_secs=[2.0], violations=["a push was lost"])
    missed = Outcome(replace(TRIAL, target=Target.CHIEF))
    text = report(7, {1: held, 2: broken, 3: missed})
    assert "| 7 | 2 | 4 | 3 | 2.00 | 3.00 | 7 | 1 | 1 |" in text
    assert f"- `make chaos SEED=7 TRIAL=2` ({TRIAL}): a push was lost" in text
    assert "chief/cut" in text
    assert "two_workers/cut" not in text
    assert "disk/kill" in text.partition("that no trial can have")[2]
