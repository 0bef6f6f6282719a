"""What must hold once the job of a trial is over, read from its model_dir and from its events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import EVALUATIONS, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.model.best import BestRecord
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.roles.events import Checkpoint, Event, Export, Metrics, Restored, RoleLost
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.chaos.program import (
    BATCH_SIZE,
    BEST_STEP,
    EXPORTER,
    LOG_STEPS,
    MAX_STEPS,
    NUM_BATCHES,
    NUM_RECORDS,
    SAVE_STEPS,
    STEP_FILE,
    TABLE,
    counters,
)
from tests.chaos.trials import STOPPED_SECS, Fault, Input, Parameters, Phase, Trial, Update

STEPS = list(range(0, MAX_STEPS + 1, SAVE_STEPS))
"""Of all checkpoints."""


def violations(trial: Trial, model_dir: Path, events: Sequence[Event]) -> list[str]:
    """Return what does not hold; reads every checkpoint."""
    store = CheckpointStore(str(model_dir))
    steps = store.steps()
    found = [
        *_final_step(model_dir),
        *_evaluations(model_dir, store),
        *_best(trial, model_dir, events),
    ]
    told = {event.step for event in events if isinstance(event, Checkpoint)}
    if steps != STEPS or not told <= set(steps):
        found.append(f"checkpoints of steps {steps}, expected {STEPS}; told of {sorted(told)}")
    for step in steps:
        reader = CheckpointReader(store, step)
        values = read_values(reader)
        found += wrong_counts(trial, step, values.variables, _rows(values), reader.manifest.job["input"]["positions"])
    return found


def wrong_counts(
    trial: Trial, step: int, variables: Mapping[str, Any], rows: Any, positions: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield what a checkpoint has not counted exactly once: updates before `step`, and records of its input positions.

    Parameters
    ----------
    trial : Trial
        Says what there is to count.
    step : int
        Of the checkpoint.
    variables : mapping of str to array
        All of the checkpoint.
    rows : (num_rows,) array
        All rows of the table; empty without one.
    positions : sequence of mappings
        The input positions of the checkpoint: one, or one of each replica.
    """
    wrong = {name: float(variables[name]) for name in counters(trial.num_ps) if variables[name] != step}
    if wrong:
        yield f"the checkpoint of step {step} has counted {wrong} updates"
    if num_repeats := sum(position["num_repeats"] for position in positions):
        yield f"up to step {step} {num_repeats} records were used twice in an epoch"
    if trial.parameters is Parameters.DENSE:
        return
    if any(rows[NUM_RECORDS:] != step):
        yield f"the rows of the checkpoint of step {step} have counted {rows[NUM_RECORDS:].tolist()} updates"
    used = sum(times_used(trial.input, position) for position in positions)
    if trial.update is not Update.SYNC and not np.array_equal(rows[:NUM_RECORDS], used):  # a part of an update each
        yield f"up to step {step} records were counted {rows[:NUM_RECORDS].tolist()} times, and used {used.tolist()}"


def wrong_reports(reports: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with what the roles say of themselves at the end."""
    exits = {role: report["exit"] for role, report in reports.items()}
    if set(exits.values()) != {"finished"}:
        yield f"the roles ended as {exits}, expected finished"
    job = reports["chief-0"]["statistics"]["job"]
    facts = {name: job[name] for name in ("global_step", "repeats", "misses")}
    if facts != {"global_step": MAX_STEPS, "repeats": 0, "misses": 0}:
        yield f"the chief reports {facts}, expected step {MAX_STEPS} without a repeat or a miss"


def times_used(kind: Input, position: Mapping[str, Any]) -> Any:
    """Return how often an input position says that each record was used, ``(NUM_RECORDS,)``."""
    spans = [span for spans in position["used"].values() for span in spans]
    if kind is Input.GENERATOR:  # what is dealt are its batches, without an end
        batches = [index for start, stop in spans for index in range(start, stop)]
        return np.repeat(np.bincount(np.array(batches, int) % NUM_BATCHES, minlength=NUM_BATCHES), BATCH_SIZE)
    used = np.full(NUM_RECORDS, position["epochs_completed"])
    for start, stop in spans:
        used[start:stop] += 1
    return used


def wrong_evaluations(lines: Sequence[Mapping[str, Any]], saved_at: Mapping[int, float]) -> list[str]:
    """Return what is wrong with the record of evaluations: a line for each checkpoint, in the order of their steps."""
    evaluated = [(line["global_step"], line["checkpoint_saved_at"]) for line in lines]
    expected = sorted(saved_at.items())
    return [] if evaluated == expected else [f"evaluated (step, saved_at) {evaluated}, expected {expected}"]


def _final_step(model_dir: Path) -> Iterator[str]:
    finished = read_finished(str(model_dir))
    if finished is None or finished.final_step != MAX_STEPS:
        yield f"finished.json says {finished}, expected step {MAX_STEPS}"


def _evaluations(model_dir: Path, store: CheckpointStore) -> list[str]:
    text = (model_dir / EVALUATIONS).read_text()
    return wrong_evaluations([json.loads(line) for line in text.splitlines()], store.saved_at())


def _best(trial: Trial, model_dir: Path, events: Sequence[Event]) -> Iterator[str]:
    """Yield what is wrong with the best export: it is of the best step, and each one before was worse."""
    best = BestRecord.read(str(model_dir / "export" / EXPORTER))
    file = "MLmodel" if trial.target.is_server else STEP_FILE
    if best is None or best.step != BEST_STEP or not Path(best.path, file).exists():
        yield f"the best export is {best}, expected step {BEST_STEP}"
    losses = [event.metrics["loss"] for event in events if isinstance(event, Export)]
    if losses != sorted(losses, reverse=True):
        yield f"exports had the losses {losses}, expected each to be better than the one before"


def wrong_losses(trial: Trial, events: Sequence[Event]) -> Iterator[str]:
    """Yield what is wrong with the roles that an attempt has lost: those of the target, and nobody else.

    Which roles a loss takes with it is a matter of `Trial.rolls_back`.
    """
    lost = sorted(event.role for event in events if isinstance(event, RoleLost))
    targets = sorted(map(str, trial.target.roles))
    if trial.fault in STOPPED_SECS:
        # a worker is, if others wait for it too long; a stopped ps, and gates, hold up those that were not hit, too
        allowed = targets if trial.fault is Fault.LONG_STOP else ()
        if others := {role for role in lost if RoleId.parse(role).role is not Role.WORKER and role not in allowed}:
            yield f"lost {lost}, expected no {', '.join(sorted(others))}"
        return
    expected = targets if trial.loses_roles else []
    may_be_over = trial.phase is Phase.FINISH  # then nobody needs them
    may_be_recalled = trial.rolls_back and bool(lost)  # one of two, as the other was lost
    is_part = set(lost) <= set(expected) and len(set(lost)) == len(lost)
    if lost != expected and not (is_part and (may_be_over or may_be_recalled)):
        yield f"lost {lost}, expected {expected}"


def wrong_ways_back(trial: Trial, events: Sequence[Event]) -> Iterator[str]:
    """Yield what is wrong where training has gone back, or is reported to have: a lost chief alone takes it nowhere."""
    if trial.rolls_back and trial.fault is Fault.LONG_STOP:
        return  # it may be lost, or not
    told = sorted(event.role for event in events if isinstance(event, RoleLost) and event.rolls_back)
    if trial.loses_roles and trial.rolls_back:
        if not told and any(isinstance(event, RoleLost) for event in events):
            yield "a loss is reported, but not that training goes back with it"
        return
    if told:
        yield f"training is reported to go back with {told}, expected that it goes on"
    if restored := [event.step for event in events if isinstance(event, Restored)]:
        yield f"the checkpoints of steps {restored} were restored, expected none"


def wrong_points(curves: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Yield what is wrong with the curves of an MLflow run: the chief alone has trained, so their steps are known.

    Parameters
    ----------
    curves : mapping of str to sequence of int
        The steps of the points of each curve, in the order in which they were written.
    """
    expected = {"loss": list(range(LOG_STEPS, MAX_STEPS + 1, LOG_STEPS)), "eval/loss": STEPS}
    for name, steps in expected.items():
        if (found := list(curves.get(name, ()))) != steps:
            yield f"the curve {name} has points of steps {found}, expected {steps}"
    for name, found in curves.items():
        if len(set(found)) != len(found):
            yield f"the curve {name} has a point twice: {list(found)}"


def wrong_runs(runs: Sequence[tuple[str, str, str]], num_ps: int) -> Iterator[str]:
    """Yield what is wrong with the runs in Prefect of a job with one chief, as kind, name and state of each."""
    expected = ["train", "chief-0", "evaluator-0", *(f"ps-{index}" for index in range(num_ps))]
    names = ["train" if kind == "flow run" else name for kind, name, _ in runs]
    if sorted(names) != sorted(expected):
        yield f"Prefect knows the runs {sorted(names)}, expected {sorted(expected)}"
    for kind, name, state in runs:
        if state != "COMPLETED":
            yield f"the {kind} {name} is {state} in Prefect, expected COMPLETED"


def num_lost_steps(events: Sequence[Event]) -> int:
    """Return how many steps were made, and lost, where training went back to a checkpoint, as far as events tell."""
    step = num_lost = 0
    for event in events:
        if isinstance(event, Restored):
            num_lost += max(0, step - event.step)
            step = event.step
        elif isinstance(event, Metrics | Checkpoint):
            step = max(step, event.step)
    return num_lost


def _rows(values: Any) -> Any:
    if TABLE not in values.tables:
        return np.empty(0)
    table = values.tables[TABLE]
    return values.rows(table.spec, np.arange(table.spec.num_rows)).ravel()
