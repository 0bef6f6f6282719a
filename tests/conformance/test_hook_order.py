"""In which order hooks are called, on the chief, on a worker, in an evaluation and in a prediction."""

from __future__ import annotations

import threading
from typing import ClassVar

import numpy as np
import pytest

import psflow
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.errors import NanGradientError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.hooks.basic import NanTensorHook
from psflow.ps_runtime.model.hooks.reporting import StepCounterHook, SummarySaverHook
from tests.ps_runtime.roles.conftest import roles  # noqa: F401  (a fixture)

TIMES = {"begin": 1, "after_create_session": 1, "before_run": 3, "after_run": 3, "end": 1}
"""How often each is called where there are three batches."""
CALLS = tuple(TIMES)


class Named(psflow.SessionRunHook):
    """Notes each of its calls under its name."""

    heard: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, name):
        self.name = name

    def begin(self):
        self.heard.append((self.name, "begin"))

    def after_create_session(self, session, coord):
        self.heard.append((self.name, "after_create_session"))

    def before_run(self, run_context):
        self.heard.append((self.name, "before_run"))

    def after_run(self, run_context, run_values):
        self.heard.append((self.name, "after_run"))

    def end(self, session):
        self.heard.append((self.name, "end"))


@pytest.fixture
def heard(monkeypatch):
    calls = []
    monkeypatch.setattr(Named, "heard", calls)
    for shipped in (NanTensorHook, SummarySaverHook, StepCounterHook):
        for call in CALLS:
            inner = getattr(shipped, call)

            def wrapped(self, *arguments, _call=call, _inner=inner, _name=shipped.__name__):
                calls.append((_name, _call))
                return _inner(self, *arguments)

            monkeypatch.setattr(shipped, call, wrapped)
    return calls


def model_fn(features, labels, mode):
    w = psflow.get_variable("w", ())
    hooks = {
        name: [Named(f"{name} 1"), Named(f"{name} 2")]
        for name in ("training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks")
    }
    predictions = {"y": w * features["x"], "x": features["x"]}
    if mode == psflow.ModeKeys.PREDICT:
        return psflow.EstimatorSpec(mode, predictions, **hooks)
    op = psflow.GradientDescent(learning_rate=0.1).apply_gradients({"w": np.float32(1)})
    return psflow.EstimatorSpec(mode, predictions, np.float32(1), op, **hooks)


def examples():
    return psflow.Dataset({"x": np.arange(6, dtype=np.float32)}, np.zeros(6, np.float32)).batch(2)


CONFIG = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=100)


@pytest.fixture
def estimator(tmp_path):
    return psflow.Estimator(model_fn, str(tmp_path / "model"), CONFIG)


@pytest.fixture(scope="module")
def _saved(tmp_path_factory):
    return psflow.Estimator(model_fn, str(tmp_path_factory.mktemp("saved")), CONFIG).train(examples)


@pytest.fixture
def trained(_saved, heard):
    """An Estimator that has trained, to be evaluated and predicted with."""
    heard.clear()
    return _saved


@pytest.fixture
def subject(what, request):
    """A new Estimator to train, or one that has trained."""
    return request.getfixturevalue("estimator" if what in ("train", "training") else "trained")


def names_of(heard, call):
    return [name for name, what in heard if what == call]


USER = [Named("user 1"), Named("user 2")]
TRAINING = ["user 1", "user 2", "NanTensorHook", "training_hooks 1", "training_hooks 2"]
CHIEF_ONLY = ["training_chief_hooks 1", "training_chief_hooks 2", "StepCounterHook", "SummarySaverHook"]
CHIEF = [*CHIEF_ONLY, *TRAINING]


def test_on_the_chief(estimator, heard):
    estimator.train(examples, USER)
    assert {call: names_of(heard, call) for call in CALLS} == {call: CHIEF * times for call, times in TIMES.items()}


@pytest.mark.parametrize(
    ("without", "gone"),
    [({"save_summary_steps": None}, "SummarySaverHook"), ({"log_step_count_steps": None}, "StepCounterHook")],
)
def test_what_is_not_wanted_is_not_there(estimator, heard, without, gone):
    for name, value in without.items():
        object.__setattr__(estimator.config, name, value)
    estimator.train(examples, USER)
    assert names_of(heard, "begin") == [name for name in CHIEF if name != gone]


def test_a_guard_of_the_user_takes_the_place_of_ours(estimator, heard):
    estimator.train(examples, [Named("user 1"), NanTensorHook(), Named("user 2")])
    assert names_of(heard, "begin") == [*CHIEF_ONLY, "user 1", "NanTensorHook", "user 2", *TRAINING[3:]]


@pytest.mark.parametrize("guard", [[], [NanTensorHook()]])
def test_the_guard_raises_what_a_step_computed_once_those_before_it_have_seen_the_step(tmp_path, heard, guard):
    def spoilt(features, labels, mode):
        psflow.get_variable("w", ())
        op = psflow.GradientDescent(learning_rate=0.1).apply_gradients({"w": np.float32(np.nan)})
        return psflow.EstimatorSpec(mode, loss=np.float32(1), train_op=op, training_hooks=[Named("training_hooks 1")])

    with pytest.raises(NanGradientError, match="a gradient of variable 'w' that is nan at global_step 0"):
        psflow.Estimator(spoilt, str(tmp_path / "model"), CONFIG).train(examples, [*USER, *guard])
    assert names_of(heard, "after_run") == ["StepCounterHook", "SummarySaverHook", "user 1", "user 2", "NanTensorHook"]
    assert names_of(heard, "end") == []


@pytest.mark.parametrize("what", ["evaluation", "prediction"])
def test_around_batches(trained, heard, what):
    if what == "evaluation":
        trained.evaluate(examples, hooks=USER)
    else:
        list(trained.predict(examples, hooks=USER))
    names = ["user 1", "user 2", f"{what}_hooks 1", f"{what}_hooks 2"]
    assert {call: names_of(heard, call) for call in CALLS} == {call: names * times for call, times in TIMES.items()}


@pytest.mark.parametrize("what", ["training", "evaluation", "prediction"])
def test_each_call_reaches_all_hooks_before_the_next_call(subject, heard, what):
    act = {"training": subject.train, "evaluation": subject.evaluate, "prediction": subject.predict}[what]
    found = act(examples, hooks=USER)
    if what == "prediction":
        list(found)
    calls = [call for call, after in zip(names(heard), [*names(heard)[1:], None], strict=True) if call != after]
    assert calls == ["begin", "after_create_session", *["before_run", "after_run"] * 3, "end"]


def names(heard):
    return [call for _, call in heard]


@pytest.mark.parametrize("what", ["train", "evaluate", "predict"])
@pytest.mark.parametrize("call", CALLS[:-1])
def test_the_end_is_not_told_after_an_exception(subject, heard, what, call):
    def fail(*arguments):
        raise ZeroDivisionError("as planned")

    failing = Named("failing")
    setattr(failing, call, fail)
    with pytest.raises(ZeroDivisionError, match="as planned"):
        list(getattr(subject, what)(examples, hooks=[failing]))  # a prediction is made as it is read
    assert names_of(heard, "end") == []


def test_the_end_is_not_told_of_a_prediction_that_is_not_read_to_its_end(trained, heard):
    predictions = trained.predict(examples, hooks=USER)
    next(predictions)
    predictions.close()
    assert names_of(heard, "after_run")[:2] == ["user 1", "user 2"]
    assert names_of(heard, "end") == []


def test_the_end_comes_after_the_last_push_and_before_the_call_returns(estimator):
    seen = []

    class AtEnd(psflow.SessionRunHook):
        def end(self, session):
            seen.append((session.global_step, session.run("global_step"), read_finished(estimator.model_dir)))

    estimator.train(examples, [AtEnd()])
    [(step, fetched, finished)] = seen
    assert (step, fetched, finished.final_step) == (3, 3, 3)


# Several replicas


class OfReplicas(psflow.SessionRunHook):
    """Asks a worker, or the chief, to stop after its first step; counts the steps of each."""

    def __init__(self, stops):
        self.stops = stops
        self.lock = threading.Lock()
        self.steps = {"chief": 0, "worker": 0}
        self.ended = []

    def after_run(self, run_context, run_values):
        who = "chief" if run_context.session.is_chief else "worker"
        with self.lock:
            self.steps[who] += 1
            if who == self.stops:
                run_context.request_stop()

    def end(self, session):
        with self.lock:
            self.ended.append("chief" if session.is_chief else "worker")


def train_two(roles, estimator, hook, max_steps, **size):  # noqa: F811
    def endless():
        return examples().repeat()

    with Attempt(estimator, psflow.TrainSpec(endless, max_steps, [hook]), None, num_workers=1, **size) as attempt:
        return roles.train(attempt.job())


@pytest.mark.parametrize("consistency", [psflow.Async(), psflow.Sync(), psflow.BoundedStaleness(2)])
@pytest.mark.parametrize("num_ps", [1, 2])
def test_a_worker_that_is_asked_to_stop_leaves_and_the_others_train_on(roles, estimator, consistency, num_ps):  # noqa: F811
    estimator.config = estimator.config.replace(consistency=consistency)
    reports = train_two(roles, estimator, hook := OfReplicas("worker"), 40, num_ps=num_ps)
    assert hook.steps["worker"] <= 1
    assert hook.steps["chief"] >= 39 - hook.steps["worker"]
    assert sorted(hook.ended) == ["chief", "worker"]
    assert read_finished(estimator.model_dir).final_step == 40
    assert {report["exit"] for report in reports.values()} == {"finished"}
    assert reports["worker-0"]["statistics"]["steps"] == hook.steps["worker"]


def batches():
    for number in range(40):
        yield {"x": np.full(2, number, np.float32)}, np.zeros(2, np.float32)


def records():
    numbers = np.repeat(np.arange(40, dtype=np.float32), 2)
    return psflow.Dataset({"x": numbers}, np.zeros(80, np.float32)).batch(2)


@pytest.mark.parametrize(("input_fn", "depth"), [(batches, 0), (records, 0), (records, 1)])
def test_a_worker_that_leaves_gives_back_what_it_has_not_used(roles, estimator, input_fn, depth):  # noqa: F811
    class Seen(psflow.SessionRunHook):
        def __init__(self):
            self.lock = threading.Lock()
            self.numbers = []

        def before_run(self, run_context):
            return psflow.SessionRunArgs("x")

        def after_run(self, run_context, run_values):
            with self.lock:
                self.numbers.append(float(run_values.results[0]))

    estimator.config = estimator.config.replace(pipeline_depth=depth)
    hooks = [Seen(), OfReplicas("worker")]
    with Attempt(estimator, psflow.TrainSpec(input_fn, None, hooks), None, num_workers=1) as attempt:
        roles.train(attempt.job())
    assert sorted(hooks[0].numbers) == list(range(40))
    assert read_finished(estimator.model_dir).final_step == 40


def test_the_end_of_the_chief_is_the_end_of_training(roles, estimator):  # noqa: F811
    train_two(roles, estimator, hook := OfReplicas("chief"), 1_000_000)
    assert hook.steps["chief"] == 1
    finished = read_finished(estimator.model_dir)
    assert finished.final_step < 1_000_000
    assert finished.reason == "a hook asked to stop"
    assert "chief" in hook.ended


class StopOnWorker(psflow.StopAtStepHook):
    def after_run(self, run_context, run_values):
        if not run_context.session.is_chief:
            super().after_run(run_context, run_values)


def test_what_ends_training_ends_it_for_all_from_any_replica(roles, estimator):  # noqa: F811
    train_two(roles, estimator, StopOnWorker(last_step=1), 1_000_000)
    assert "has reached 1" in read_finished(estimator.model_dir).reason


def test_a_worker_waits_for_its_first_step(roles, estimator):  # noqa: F811
    first = []

    class First(psflow.SessionRunHook):
        def after_create_session(self, session, coord):
            if not session.is_chief:
                first.append(session.global_step)

    def endless():
        return examples().repeat()

    class Stopping(psflow.SessionRunHook):
        def after_run(self, run_context, run_values):
            if not run_context.session.is_chief:
                run_context.coordinator.end_training("seen")

    hooks = [psflow.GlobalStepWaiterHook(20), psflow.GlobalStepWaiterHook(0), First(), Stopping()]
    with Attempt(estimator, psflow.TrainSpec(endless, 1_000_000, hooks), None, num_workers=1) as attempt:
        roles.train(attempt.job())
    assert first[0] >= 20
    assert read_finished(estimator.model_dir).reason == "seen"


def test_a_worker_does_not_wait_for_more_than_the_end(roles, estimator):  # noqa: F811
    reports = train_two(roles, estimator, psflow.GlobalStepWaiterHook(1_000), 5)
    assert reports["worker-0"]["statistics"]["steps"] == 0
    assert read_finished(estimator.model_dir).final_step == 5


def test_a_chief_alone_does_not_wait(estimator):
    estimator.train(examples, [psflow.GlobalStepWaiterHook(1_000)])
    assert read_finished(estimator.model_dir).final_step == 3


def test_nobody_waits_for_a_worker_that_waits(estimator):
    estimator.config = estimator.config.replace(consistency=psflow.Sync())
    spec = psflow.TrainSpec(examples, None, [psflow.GlobalStepWaiterHook(1)])
    with pytest.raises(UsageError, match="with sync consistency the other replicas wait for them; leave it out"):
        Attempt(estimator, spec, None, num_workers=1)


def test_a_waiter_where_it_has_no_effect_is_refused(trained):
    with pytest.raises(UsageError, match=r"works only in TrainSpec\.hooks; move it there"):
        trained.evaluate(examples, hooks=[psflow.GlobalStepWaiterHook(1)])


def test_the_stop_at_a_checkpoint_step_is_that_of_every_role(estimator):
    hook = psflow.make_stop_at_checkpoint_step_hook(estimator, 2)
    estimator.train(examples, [hook])
    assert estimator.latest_checkpoint().endswith("step_00000002")
