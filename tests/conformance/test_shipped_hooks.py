"""The hooks that ship: the timer, logging, stopping, counting, summaries, final values, guards."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

import psflow
from psflow.ps_runtime.errors import NanLossError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.hooks import base
from tests.conformance.hooked import Fetching, examples, run

# The timer

TIMED_BY_STEPS = [
    (1, [1, 2, 3, 4], [1, 2, 3, 4]),
    (2, [1, 2, 3, 4, 5], [1, 3, 5]),
    (10, [3, 12, 13, 22, 40], [3, 13, 40]),
    (100, [7, 7, 8, 106, 107], [7, 107]),
]


@pytest.mark.parametrize(("every", "steps", "triggered"), TIMED_BY_STEPS)
def test_a_timer_triggers_first_and_then_by_steps(every, steps, triggered):
    timer = psflow.SecondOrStepTimer(every_steps=every)
    found = []
    for step in steps:
        if timer.should_trigger_for_step(step):
            timer.update_last_triggered_step(step)
            found.append(step)
    assert found == triggered
    assert timer.last_triggered_step() == triggered[-1]


def test_a_timer_triggers_by_seconds_but_not_twice_for_a_step(monkeypatch):
    clock = SimpleNamespace(now=50.0)
    monkeypatch.setattr(base.time, "monotonic", lambda: clock.now)
    timer = psflow.SecondOrStepTimer(every_secs=2)
    assert timer.should_trigger_for_step(1)
    assert timer.update_last_triggered_step(1) == (None, None)
    clock.now = 52.0
    assert not timer.should_trigger_for_step(1)
    assert timer.should_trigger_for_step(2)
    assert timer.update_last_triggered_step(5) == (2.0, 4)
    assert not timer.should_trigger_for_step(6)
    timer.reset()
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(6)


WRONG_PERIODS = [
    (lambda: psflow.SecondOrStepTimer(), "give exactly one of every_secs and every_steps, got none"),
    (lambda: psflow.SecondOrStepTimer(1, 1), r"give exactly one of .*, got \['every_secs', 'every_steps'\]"),
    (lambda: psflow.SecondOrStepTimer(every_secs=0), "every_secs should be greater than 0, got 0"),
    (lambda: psflow.SecondOrStepTimer(every_steps=-1), "every_steps should be greater than 0, got -1"),
    (lambda: psflow.SecondOrStepTimer(every_secs=float("nan")), "every_secs should be a number, got float nan"),
    (lambda: psflow.StepCounterHook(None), "give exactly one of every_n_steps and every_n_secs, got none"),
    (lambda: psflow.StepCounterHook(10, 10), r"got \['every_n_steps', 'every_n_secs'\]"),
    (lambda: psflow.StepCounterHook(every_n_steps=0), "every_n_steps should be greater than 0, got 0"),
    (lambda: psflow.SummarySaverHook(), "give exactly one of save_steps and save_secs, got none"),
    (lambda: psflow.SummarySaverHook(1, 1), r"got \['save_steps', 'save_secs'\]"),
    (lambda: psflow.SummarySaverHook(save_secs=-2), "save_secs should be greater than 0, got -2"),
    (lambda: psflow.LoggingTensorHook("loss"), "give exactly one of every_n_iter and every_n_secs, got none"),
    (lambda: psflow.LoggingTensorHook("loss", 1, 1), r"got \['every_n_iter', 'every_n_secs'\]"),
    (lambda: psflow.LoggingTensorHook("loss", 0, at_end=True), "every_n_iter should be greater than 0, got 0"),
    (lambda: psflow.LoggingTensorHook("loss", every_n_secs=-1), "every_n_secs should be greater than 0, got -1"),
    (lambda: psflow.StopAtStepHook(), "takes either num_steps or last_step; got num_steps=None, last_step=None"),
    (lambda: psflow.StopAtStepHook(1, 2), "num_steps or last_step; got num_steps=1, last_step=2"),
    (lambda: psflow.NanTensorHook(False), "takes the loss first, got False: write fail_on_nan_loss=False"),
    (lambda: psflow.NanTensorHook("loss", "no"), "fail_on_nan_loss must be True or False, got 'no'"),
]


@pytest.mark.parametrize(("make", "said"), WRONG_PERIODS)
def test_a_hook_that_cannot_work_is_refused(make, said):
    with pytest.raises(UsageError, match=said):
        make()


WRONG_TYPES = [
    (lambda: psflow.SecondOrStepTimer(every_steps="x"), "every_steps should be a whole number or None, got str 'x'"),
    (lambda: psflow.SecondOrStepTimer(every_steps=1.5), "every_steps should be a whole number or None, got float 1.5"),
    (lambda: psflow.SecondOrStepTimer(every_secs=[3]), r"every_secs should be a number, got list \[3\]"),
    (lambda: psflow.StepCounterHook(True), "every_n_steps should be a whole number or None, got bool True"),
    (lambda: psflow.StepCounterHook(10**400), "every_n_steps should be a whole number or None, got int 10"),
    (lambda: psflow.SummarySaverHook("x"), "save_steps should be a whole number or None, got str 'x'"),
    (lambda: psflow.ProfilerHook(()), r"save_steps should be a whole number or None, got tuple \(\)"),
    (lambda: psflow.ProfilerHook(1, output_dir=3), "ProfilerHook: output_dir should be a str or path, got int 3"),
    (lambda: psflow.LoggingTensorHook(None, 1), "LoggingTensorHook: tensors should be a name, or a .*, got None"),
    (lambda: psflow.LoggingTensorHook([3], 1), r"tensors should be a name, or a sequence or .*, got list \[3\]"),
    (lambda: psflow.LoggingTensorHook({"a": 2}, 1), "tensors should be a name, or a sequence or .*, got dict"),
    (lambda: psflow.LoggingTensorHook(b"loss", 1), "tensors should be a name, or a sequence or .*, got bytes"),
    (lambda: psflow.LoggingTensorHook("loss", 1, at_end="x"), "at_end should be True or False, got str 'x'"),
    (lambda: psflow.LoggingTensorHook("loss", 1, formatter="x"), "formatter should be callable, got str 'x'"),
    (lambda: psflow.StopAtStepHook("x"), "StopAtStepHook: num_steps should be a whole number, got str 'x'"),
    (lambda: psflow.StopAtStepHook(last_step=1.5), "last_step should be a whole number, got float 1.5"),
    (lambda: psflow.GlobalStepWaiterHook(None), "wait_until_step should be a whole number, got None"),
    (lambda: psflow.CheckpointSaverHook(3, 5), "CheckpointSaverHook: checkpoint_dir should be a str or None, got int"),
    (lambda: psflow.CheckpointSaverHook("d", 5, listeners=3), "listeners should be a sequence of .*, or None, got int"),
    (lambda: psflow.CheckpointSaverHook("d", 5, listeners=[3]), r"listeners\[0\] should be a CheckpointSaverListener"),
    (lambda: psflow.InMemoryEvaluatorHook(None, bool), "InMemoryEvaluatorHook: estimator should be an Estimator, got"),
    (lambda: psflow.MonitoredTrainingSession(3, bool), "MonitoredTrainingSession: estimator should be an Estimator, g"),
    (lambda: psflow.BoundedStaleness(None), "max_staleness should be a whole number, got None"),
    (lambda: psflow.Sync("x"), "replicas_to_aggregate should be a whole number, got str 'x'"),
    (lambda: psflow.Async("x"), "staleness_aware should be True or False, got str 'x'"),
    (lambda: psflow.read_eval_metrics(None), "eval_dir should be a str, got None"),
    (lambda: psflow.TrainSpec(bool, max_steps=10**400), "max_steps should be a whole number or None, got int 10"),
    (
        lambda: psflow.RunConfig(save_checkpoints_secs=10**400),
        "save_checkpoints_secs should be a .*number.*, got int 1",
    ),
]


@pytest.mark.parametrize(("make", "said"), WRONG_TYPES)
def test_a_wrong_type_is_an_error_of_type(make, said):
    with pytest.raises(TypeError, match=said) as caught:
        make()
    assert isinstance(caught.value, UsageError)


def test_a_step_that_is_negative_is_none():
    for arguments in ({"num_steps": -1}, {"last_step": -1}):
        with pytest.raises(UsageError, match=r"_steps? should be 0 or more, got -1"):
            psflow.StopAtStepHook(**arguments)


# LoggingTensorHook


def lines_of(caplog, estimator, *arguments, what="train", **options):
    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.hooks.reporting"):
        run(estimator, what, [psflow.LoggingTensorHook(*arguments, **options)])
    found = [r.getMessage() for r in caplog.records if r.name == "psflow.ps_runtime.model.hooks.reporting"]
    return [line.partition(" (")[0] for line in found]


LOGGED = [
    ("loss", {"every_n_iter": 1}, ["loss = 0.5", "loss = 1.25", "loss = 0.0"]),
    ("loss", {"every_n_iter": 2}, ["loss = 0.5", "loss = 0.0"]),
    (["w", "loss"], {"every_n_iter": 3}, ["w = 1.0, loss = 0.5"]),
    ({"w": "w", "step": "global_step"}, {"every_n_iter": 3}, ["step = 1, w = 1.0"]),
    ("w", {"at_end": True}, ["w = -0.5"]),
    ("w", {"every_n_iter": 3, "at_end": True}, ["w = 1.0", "w = -0.5"]),
    ("loss", {"every_n_secs": 1e-9}, ["loss = 0.5", "loss = 1.25", "loss = 0.0"]),
    ("loss", {"every_n_secs": 3600}, ["loss = 0.5"]),
    ("loss", {"every_n_iter": 2, "formatter": lambda v: f"<{v['loss']}>"}, ["<0.5>", "<0.0>"]),
    ({"a": "loss"}, {"at_end": True, "formatter": str}, ["{'a': 0.0}"]),
]


@pytest.mark.parametrize(("tensors", "options", "lines"), LOGGED)
def test_logs(caplog, estimator, tensors, options, lines):
    assert lines_of(caplog, estimator, tensors, **options) == lines


def test_logs_an_evaluation_and_a_prediction(caplog, trained):
    assert lines_of(caplog, trained, "mean", what="evaluate", at_end=True) == ["mean = -1.25"]
    caplog.clear()
    assert lines_of(caplog, trained, ["w"], what="predict", every_n_iter=2) == ["w = -0.5"] * 2


def test_says_the_seconds_between_two_lines(caplog, estimator):
    hook = psflow.LoggingTensorHook("loss", every_n_iter=2)
    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.hooks.reporting"):
        estimator.train(examples, [hook])
    first, second = (r.getMessage() for r in caplog.records if r.name == "psflow.ps_runtime.model.hooks.reporting")
    assert first == "loss = 0.5"
    assert second.startswith("loss = 0.0 (0.")
    assert second.endswith(" sec)")


# The others

STOPS = [({"num_steps": 1}, 1), ({"num_steps": 2}, 2), ({"last_step": 1}, 1), ({"last_step": 9}, 3)]


@pytest.mark.parametrize(("arguments", "last"), STOPS)
def test_stops_at_a_step(estimator, arguments, last):
    estimator.train(examples, [psflow.StopAtStepHook(**arguments)])
    assert estimator.latest_checkpoint().endswith(f"step_{last:08d}")


def test_num_steps_count_from_the_start_of_this_call(estimator):
    estimator.train(examples)
    estimator.train(lambda: examples().repeat(), [psflow.StopAtStepHook(num_steps=4)])
    assert estimator.latest_checkpoint().endswith("step_00000007")


FINAL = [("w", -0.5), (["global_step", "w"], [3, -0.5]), ({"l": "loss"}, {"l": 0.0}), (None, None)]


def test_final_ops_are_those_of_the_end(estimator):
    hooks = [psflow.FinalOpsHook(final_ops) for final_ops, _ in FINAL]
    assert {hook.final_ops_values for hook in hooks} == {None}
    estimator.train(examples, hooks)
    assert [hook.final_ops_values for hook in hooks] == [values for _, values in FINAL]


def test_final_ops_of_an_evaluation_are_its_metrics(trained):
    hook = psflow.FinalOpsHook({"m": "mean", "l": "loss"})
    found = trained.evaluate(examples, hooks=[hook])
    assert hook.final_ops_values == {"m": found["mean"], "l": -2.25}  # the loss is that of the last batch


def test_hooks_that_count_steps_have_nothing_to_report_of_an_evaluation(trained, caplog):
    counters = [psflow.StepCounterHook(1), psflow.SummarySaverHook(1), psflow.StepCounterHook(None, 1e-9)]
    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.hooks.batch"):
        trained.evaluate(examples, hooks=counters)
    assert [r for r in caplog.records if r.name == "psflow.ps_runtime.model.hooks.batch"] == []


def test_what_a_hook_reports_of_an_evaluation_is_logged(trained, caplog):
    class Reporting(psflow.SessionRunHook):
        def end(self, session):
            session.report(session.global_step, {"m": session.run("mean")})

    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.hooks.batch"):
        trained.evaluate(examples, hooks=[Reporting()])
    assert "step 3: {'m': -1.25}" in caplog.messages


def nan_in_second_batch():
    for x in ([0, 1], [np.nan, 1], [2, 3]):
        yield {"x": np.float32(x)}, np.zeros(2, np.float32)


def test_an_evaluation_with_a_nan_is_guarded_if_it_is_asked_for(trained):
    assert np.isnan(trained.evaluate(nan_in_second_batch, non_finite="keep")["loss"])
    with pytest.raises(NanLossError):
        trained.evaluate(nan_in_second_batch, hooks=[psflow.NanTensorHook("loss")], non_finite="keep")
    guard = psflow.NanTensorHook(fail_on_nan_loss=False)
    count = Fetching("global_step")
    trained.evaluate(nan_in_second_batch, hooks=[guard, count], non_finite="keep")
    assert len(count.results) == 2


def metrics_of(monkeypatch, estimator, hooks):
    events = []
    monkeypatch.setattr(Attempt, "log_event", staticmethod(events.append))
    estimator.train(examples, hooks)
    return [event for event in events if isinstance(event, psflow.Metrics)]


def test_the_chief_reports_what_a_hook_counts(monkeypatch, estimator):
    found = metrics_of(monkeypatch, estimator, [psflow.StepCounterHook(every_n_steps=2)])
    [counted] = [event for event in found if "steps_per_sec" in event.values and "loss" in event.values]
    assert (counted.step, counted.values["loss"]) == (2, 1.25)
    assert counted.values.keys() == {"loss", "steps_per_sec", "examples_per_sec", "staleness"}


@pytest.mark.parametrize(("arguments", "steps"), [({"save_steps": 2}, [2]), ({"save_secs": 1e-9}, [1, 2, 3])])
def test_the_chief_reports_summaries(monkeypatch, estimator, arguments, steps):
    found = metrics_of(monkeypatch, estimator, [psflow.SummarySaverHook(**arguments)])
    assert [event.step for event in found if "largest" in event.values] == steps
