"""The hooks that ship, driven manually."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace

import pytest

from psflow.ps_runtime.errors import NanGradientError, NanLossError, UsageError
from psflow.ps_runtime.model.hooks import reporting
from psflow.ps_runtime.model.hooks.base import Coordinator, SessionRunArgs, SessionRunContext, SessionRunValues, pick
from psflow.ps_runtime.model.hooks.basic import NanTensorHook, StopAtStepHook
from psflow.ps_runtime.model.hooks.reporting import LoggingTensorHook, StepCounterHook, SummarySaverHook


class Steps:
    """A session that is told what its steps gave."""

    def __init__(self, hook, start=0, reports=None, gradients_per_step=1):
        self.global_step = start
        self.num_examples = 10
        self.staleness = 0
        self.summaries = {}
        self.file_summaries = {}
        self.fault = None
        self.gradients_per_step = gradients_per_step
        self.report = lambda *report: reports.append(report)
        self.hook = hook
        self.coordinator = Coordinator()
        hook.begin()
        hook.after_create_session(self, self.coordinator)

    def step(self, to, loss=0.5, **summaries):
        context = SessionRunContext(SessionRunArgs(), self, self.coordinator)
        args = self.hook.before_run(context)
        self.global_step, self.loss, self.summaries = to, loss, summaries
        values = {"loss": loss, "global_step": to, "w": 1.5}
        self.hook.after_run(context, SessionRunValues(None if args is None else pick(args.fetches, values)))
        return self.coordinator.stop_reason


def test_stops_at_a_global_step_of_others_too():
    steps = Steps(StopAtStepHook(last_step=10), start=7)
    assert steps.step(8) is None
    assert steps.step(11) == "global_step 11 has reached 10"


def test_stops_so_many_steps_after_the_start():
    steps = Steps(StopAtStepHook(num_steps=2), start=7)
    assert steps.step(8) is None
    assert steps.step(9) == "global_step 9 has reached 9"


@pytest.mark.parametrize("arguments", [{}, {"num_steps": 1, "last_step": 1}])
def test_takes_one_way_to_stop(arguments):
    with pytest.raises(UsageError, match="takes either num_steps or last_step;"):
        StopAtStepHook(**arguments)


@pytest.mark.parametrize(
    "fault", [NanLossError(float("nan"), 4), NanGradientError("worker-0", "w", None, float("-inf"), 4)]
)
def test_a_step_that_was_not_pushed_is_an_error_or_an_end(fault, caplog):
    steps = Steps(NanTensorHook())
    steps.fault = fault
    with pytest.raises(type(fault), match=re.escape(str(fault))):
        steps.step(4)
    steps = Steps(NanTensorHook(fail_on_nan_loss=False))
    assert steps.step(3) is None
    steps.fault = fault
    assert steps.step(4) == str(fault)
    assert caplog.messages == [f"{fault}; training ends"]


def messages_of(caplog, tensors, num_steps, **options):
    steps = Steps(LoggingTensorHook(tensors, **options))
    with caplog.at_level(logging.INFO, logger=reporting.logger.name):
        for n in range(1, num_steps + 1):
            steps.step(n)
    return caplog.messages


def test_logs_every_so_many_steps_from_the_first_on(caplog):
    found = messages_of(caplog, ["loss", "global_step"], 7, every_n_iter=3)
    assert [line.partition(" (")[0] for line in found] == [f"loss = 0.5, global_step = {n}" for n in (1, 4, 7)]


def test_logs_under_titles(caplog):
    assert messages_of(caplog, {"weight": "w"}, 1, every_n_iter=1) == ["weight = 1.5"]


def test_logs_a_single_name(caplog):
    assert messages_of(caplog, "loss", 1, every_n_iter=1) == ["loss = 0.5"]


def test_logs_nothing_between(caplog):
    hook = LoggingTensorHook(["loss"], every_n_iter=2)
    steps = Steps(hook)
    steps.step(1)
    assert hook.before_run(SessionRunContext(SessionRunArgs(), steps)) is None


@pytest.fixture
def clock(monkeypatch):
    time = SimpleNamespace(now=100.0)
    monkeypatch.setattr(reporting.time, "monotonic", lambda: time.now)
    return time


def test_counts_the_steps_and_examples_of_all_replicas(clock):
    reports = []
    steps = Steps(StepCounterHook(every_n_steps=10), start=5, reports=reports)
    steps.step(8)
    clock.now += 2
    steps.staleness = 3
    steps.step(13, loss=0.25)
    steps.step(19)
    assert reports == [(13, {"loss": 0.25, "steps_per_sec": 4.0, "examples_per_sec": 40.0, "staleness": 1.5})]
    clock.now += 1
    steps.staleness = 1
    steps.step(20)
    assert reports[1] == (20, {"loss": 0.5, "steps_per_sec": 7.0, "examples_per_sec": 70.0, "staleness": 2.0})


def test_reports_summaries():
    reports = []
    steps = Steps(SummarySaverHook(save_steps=5), reports=reports)
    steps.step(4, accuracy=0.5)
    steps.step(6, accuracy=1)
    steps.step(7, accuracy=0.75)
    steps.step(10)
    assert reports == [(6, {"accuracy": 1})]


@pytest.mark.parametrize(
    "make",
    [
        lambda n: LoggingTensorHook("loss", every_n_iter=n),
        lambda n: StepCounterHook(every_n_steps=n),
        lambda n: SummarySaverHook(save_steps=n),
    ],
)
def test_refuses_a_period_without_steps(make):
    with pytest.raises(UsageError, match=r"(every_n|save)_\w+ should be greater than 0, got 0"):
        make(0)


def test_counts_the_examples_of_all_gradients_of_an_update(clock):
    reports = []
    steps = Steps(StepCounterHook(every_n_steps=10), reports=reports, gradients_per_step=3)
    clock.now += 2
    steps.step(10)
    assert reports[0][1]["examples_per_sec"] == 150.0
