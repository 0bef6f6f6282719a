"""A whole job in this process, its evaluator beside it."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import ModelDirError, NoBestError
from psflow.ps_runtime.estimator import local
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.model.export.exporters import BestExporter
from psflow.ps_runtime.model.hooks.basic import StopAtStepHook
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.roles.event_codec import decode_event, encode_event
from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Export, FirstStep, Metrics, TrainingLoss
from tests.ps_runtime.estimator.regression import NUM_RECORDS, FailAt, batches, records, shuffled, steps_of

EVAL = EvalSpec(records, None, start_delay_secs=0, throttle_secs=0)


def run(estimator, eval_spec=EVAL, max_steps=12, hooks=(), check=lambda: None):
    events = []
    with Attempt(estimator, TrainSpec(shuffled, max_steps, hooks), eval_spec) as attempt:
        return run_local(attempt.job(), events.append, check), events


def test_reports_and_events_tell_what_happened(make):
    reports, events = run(make())
    assert {name: report["exit"] for name, report in reports.items()} == {
        "chief-0": "finished",
        "evaluator-0": "finished",
    }
    train = reports["chief-0"]["statistics"]["train"]
    assert train["steps"] == 12
    assert train["examples_per_sec"] == pytest.approx(4 * train["steps_per_sec"], rel=0.01)
    assert reports["chief-0"]["transport"] == "in-process"
    chief = [event for event in events if event.role == "chief-0"]
    assert [event.number for event in chief] == list(range(1, len(chief) + 1))
    assert [event.step for event in chief if isinstance(event, Checkpoint)] == [0, 5, 10, 12]
    steps = [event.step for event in chief if isinstance(event, Metrics) and "loss" in event.values]
    assert steps == [5, 10]


@pytest.mark.parametrize("evaluate_on", [records, batches])
def test_every_checkpoint_is_evaluated_once_also_over_restarts(make, evaluate_on):
    estimator = make()
    spec = EvalSpec(evaluate_on, None, start_delay_secs=0, throttle_secs=0)
    with pytest.raises(ZeroDivisionError):
        run(estimator, spec, hooks=[FailAt(8)])
    run(estimator, spec)
    assert sorted(e.global_step for e in EvaluationLog(estimator.model_dir).read()) == [0, 5, 10, 12]


def test_an_evaluator_with_a_long_throttle_still_evaluates_the_final_checkpoint(make):
    estimator = make()
    run(estimator, EvalSpec(records, 1, start_delay_secs=3600, throttle_secs=3600))
    assert steps_of(estimator.model_dir)[-1] == 12
    assert EvaluationLog(estimator.model_dir).read()[-1].global_step == 12


def test_an_evaluator_whose_input_fails_fails_the_job_with_its_error(make):
    calls = []

    def failing():
        calls.append(1)
        yield records().read(0, 0, 4)
        if len(calls) > 1:  # the first call is the plan's
            raise ZeroDivisionError("the second evaluation batch is missing")

    with pytest.raises(ZeroDivisionError, match="the second evaluation batch is missing"):
        run(make(), EvalSpec(failing, None, start_delay_secs=0, throttle_secs=0), max_steps=1_000_000)


def test_a_job_of_which_no_evaluation_is_finite_fails_when_its_training_is_saved(make):
    def holed():
        return replace(records(), labels=np.full(NUM_RECORDS, np.nan))

    estimator = make()
    eval_spec = replace(EVAL, input_fn=holed, exporters=BestExporter(), non_finite="keep")
    with pytest.raises(NoBestError, match=r"loss is nan.*training is saved: .* in labels, row 0 of input_fn .*holed"):
        run(estimator, eval_spec)
    assert steps_of(estimator.model_dir)[-1] == 12
    assert EvaluationLog(estimator.model_dir).read()[-1].global_step == 12


class MakesDirectory:
    def write(self, directory, bundle):
        os.makedirs(directory)


def test_the_checkpoint_of_the_best_export_stays_beside_the_newest(make):
    estimator = make(save_checkpoints_steps=2, keep_checkpoint_max=2)
    exporters = [BestExporter("worst", compare_fn=better("loss", "max")), BestExporter()]
    with Attempt(estimator, TrainSpec(shuffled, 20), replace(EVAL, exporters=exporters)) as attempt:
        run_local(attempt.job(MakesDirectory()), lambda event: None, lambda: None)
    best = {exporter.best(estimator.model_dir).step for exporter in exporters}
    assert min(best) == 0, "the loss is greatest before the first step"
    assert steps_of(estimator.model_dir) == sorted({18, 20} | best)


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_best_export_that_was_removed_by_hand_is_made_again(make, caplog, has_checkpoint):
    estimator, exporter = make(save_checkpoints_steps=5), BestExporter("worst", compare_fn=better("loss", "max"))

    def run_to(max_steps):
        events = []
        with Attempt(estimator, TrainSpec(shuffled, max_steps), replace(EVAL, exporters=exporter)) as attempt:
            run_local(attempt.job(MakesDirectory()), events.append, lambda: None)
        return [event for event in events if isinstance(event, Export)]

    [first] = run_to(5)
    before = exporter.best(estimator.model_dir)
    shutil.rmtree(before.path)
    if not has_checkpoint:
        shutil.rmtree(CheckpointStore(estimator.model_dir).path(0))
    again = run_to(10)
    after = exporter.best(estimator.model_dir)
    assert (after.step, after.metrics) == (0, before.metrics)
    assert os.path.isdir(after.path) == has_checkpoint
    assert [(event.step, event.version, event.metrics) for event in again] == [(0, 2, first.metrics)] * has_checkpoint
    end = "it is exported again from its checkpoint" if has_checkpoint else "and so is its checkpoint; remove best.json"
    [warning] = [message for message in caplog.messages if "exporter" in message]
    assert f"'worst': the best export, {before.path} of step 0, is missing" in warning
    assert end in warning


def test_a_failure_of_training_ends_the_evaluator(make):
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="as planned"):
        run(make(), hooks=[FailAt(6)])
    assert threading.active_count() == before


def test_who_loses_the_model_dir_ends(make):
    estimator = make()
    num_looks = iter(range(1_000_000))

    def check():
        if next(num_looks) >= 2:
            raise ModelDirError(("the job is another's by now",))

    with pytest.raises(ModelDirError, match="another's by now"):
        run(estimator, max_steps=10_000_000, check=check)


def test_without_checkpoints_the_evaluator_leaves_too(make):
    reports, _ = run(make(save_checkpoints_steps=None, save_checkpoints_secs=None))
    assert reports["evaluator-0"]["statistics"]["evaluated_steps"] == []


def test_events_travel_as_plain_data(make):
    _, events = run(make())

    def is_plain(value):
        if isinstance(value, dict):
            return all(type(k) is str and is_plain(v) for k, v in value.items())
        return value is None or type(value) in (str, int, float, bool)

    assert {type(event) for event in events} == {FirstStep, TrainingLoss, Metrics, Checkpoint, Evaluation}
    for event in events:
        data = encode_event(event)
        assert is_plain(data[1])
        assert decode_event(data) == event


def test_a_generator_that_blocks_for_ever_keeps_nobody(make):
    never = threading.Event()

    def blocking():
        yield from itertools.islice(batches(), 4)
        never.wait()

    estimator = make()
    try:
        estimator.train(blocking, [StopAtStepHook(last_step=2)])
    finally:
        never.set()
    assert steps_of(estimator.model_dir)[-1] == 2


def test_who_does_not_wait_for_the_evaluator_leaves_nothing_open(make, monkeypatch):
    def interrupt(evaluator):
        raise KeyboardInterrupt

    closed = []
    for kind in (local.PsParts, local.InProcessServer):
        close = kind.close
        monkeypatch.setattr(kind, "close", lambda self, close=close: (closed.append(type(self)), close(self)))
    monkeypatch.setattr(local._EvaluatorThread, "stop", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(make(), None, max_steps=1)
    assert closed == [local.PsParts, local.InProcessServer]
