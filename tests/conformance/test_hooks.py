"""Hooks as an Estimator's user knows them: the calls, what they fetch, what they may be given."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

import psflow
from psflow import metrics, summary
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.errors import NanLossError, UsageError
from psflow.ps_runtime.model import hook_timer
from psflow.ps_runtime.model.hooks import Coordinator, HookCalls, as_hooks


def examples():
    return psflow.Dataset({"x": np.arange(6, dtype=np.float32)}, np.zeros(6, np.float32)).batch(2)


def model_fn(features, labels, mode):
    w = psflow.get_variable("w", (), initializer=lambda shape, dtype, rng: np.ones(shape, dtype))
    predicted = w * features["x"]
    if mode == psflow.ModeKeys.PREDICT:
        return psflow.EstimatorSpec(mode, predictions={"y": predicted})
    summary.scalar("largest", features["x"].max())
    return psflow.EstimatorSpec(
        mode,
        predictions={"y": predicted},
        loss=np.mean(predicted),
        train_op=psflow.GradientDescent(learning_rate=0.5).apply_gradients({"w": np.float32(1)}),
        eval_metric_ops={"mean": metrics.mean(predicted)},
    )


CONFIG = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=100)


@pytest.fixture
def estimator(tmp_path):
    return psflow.Estimator(model_fn, str(tmp_path / "model"), CONFIG)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """An Estimator to be evaluated and predicted with: its w is 1 - 3 * 0.5."""
    return psflow.Estimator(model_fn, str(tmp_path_factory.mktemp("trained")), CONFIG).train(examples, max_steps=3)


@pytest.fixture
def subject(what, request):
    """A new Estimator to train, or one that has trained."""
    return request.getfixturevalue("estimator" if what == "train" else "trained")


class Fetching(psflow.SessionRunHook):
    """Keeps what it fetches of each run, and of the end."""

    def __init__(self, fetches, at_end=None):
        self.fetches, self.at_end = fetches, at_end
        self.results, self.last = [], None

    def before_run(self, run_context):
        return psflow.SessionRunArgs(self.fetches)

    def after_run(self, run_context, run_values):
        self.results.append(run_values.results)

    def end(self, session):
        self.last = session.run(self.at_end)


# What may be fetched

TRAINING = [
    ("loss", [0.5, 1.25, 0.0]),
    ("global_step", [1, 2, 3]),
    ("w", [1.0, 0.5, 0.0]),
    ("largest", [1.0, 3.0, 5.0]),
    ("mean", [0.5, 1.25, 0.0]),
    (["loss", "w"], [[0.5, 1.0], [1.25, 0.5], [0.0, 0.0]]),
    (("loss",), [[0.5], [1.25], [0.0]]),
    ({"a": "w", "b": ["global_step"]}, [{"a": 1.0, "b": [1]}, {"a": 0.5, "b": [2]}, {"a": 0.0, "b": [3]}]),
    (None, [None] * 3),
    ((), [[]] * 3),
    ({}, [{}] * 3),
]


def test_steps_of_training_give(estimator):
    hooks = [Fetching(fetches) for fetches, _ in TRAINING]
    estimator.train(examples, hooks)
    assert [(hook.fetches, hook.results) for hook in hooks] == TRAINING


EVALUATION = [
    ("loss", [-0.25, -1.25, -2.25]),
    ("global_step", [3, 3, 3]),
    ("w", [-0.5] * 3),
    ("mean", [-0.25, -0.75, -1.25]),  # over all batches so far
    (["mean", {"step": "global_step"}], [[m, {"step": 3}] for m in (-0.25, -0.75, -1.25)]),
    (None, [None] * 3),
]


def test_batches_of_an_evaluation_give(trained):
    hooks = [Fetching(fetches, at_end=["mean", "w", "global_step"]) for fetches, _ in EVALUATION]
    found = trained.evaluate(examples, hooks=hooks)
    assert [(hook.fetches, hook.results) for hook in hooks] == EVALUATION
    assert all(hook.last == [found["mean"], -0.5, 3] for hook in hooks)


@pytest.mark.parametrize(("fetches", "results"), [("global_step", [3] * 3), ("w", [-0.5] * 3), ({}, [{}] * 3)])
def test_a_batch_of_a_prediction_gives(trained, fetches, results):
    hook = Fetching(fetches)
    assert len(list(trained.predict(examples, hooks=[hook]))) == 6
    assert hook.results == results


def test_a_batch_of_a_prediction_gives_predictions(trained):
    hook = Fetching("y", at_end="w")
    given = list(trained.predict(examples, hooks=[hook], yield_single_examples=False))
    assert [y.tolist() for y in hook.results] == [p["y"].tolist() for p in given] == [[0, -0.5], [-1, -1.5], [-2, -2.5]]
    assert hook.last == -0.5


UNKNOWN = [
    ("train", "lost", r"a hook fetches 'lost', which this step does not have; did you mean 'loss'\?"),
    ("train", ["loss", "W"], "a hook fetches 'W'"),
    ("train", 3, "a hook fetches 3; expected a name, or a list or dict of names, such as 'loss'"),
    ("train", {"a": None, "b": 1.5}, r"a hook fetches 1\.5; expected a name"),
    ("evaluate", "meen", r"a hook fetches 'meen', .*; did you mean 'mean'\?"),
    ("evaluate", "largest", "a hook fetches 'largest'"),
    ("predict", "loss", "a hook fetches 'loss'"),
    ("predict", "yy", r"a hook fetches 'yy', .*; did you mean 'y'\?"),
]


def run(estimator, what, hooks):
    return (
        list(getattr(estimator, what)(examples, hooks=hooks))
        if what == "predict"
        else getattr(estimator, what)(examples, hooks=hooks)
    )


@pytest.mark.parametrize(("what", "fetches", "said"), UNKNOWN)
def test_an_unknown_name_is_refused(subject, what, fetches, said):
    with pytest.raises(UsageError, match=said):
        run(subject, what, [Fetching(fetches)])


@pytest.mark.parametrize("what", ["train", "evaluate", "predict"])
def test_before_run_returns_arguments_or_nothing(subject, what):
    class Wrong(psflow.SessionRunHook):
        def before_run(self, run_context):
            return "loss"

    said = r"before_run of Wrong must return SessionRunArgs or None, got 'loss'; write SessionRunArgs\(fetches\)"
    with pytest.raises(UsageError, match=said):
        run(subject, what, [Wrong()])


# What may be given as hooks

NO_HOOKS = [
    ([3], r"hooks\[0\] should be a SessionRunHook, got int 3"),
    ([psflow.SessionRunHook(), "x"], r"hooks\[1\] should be a SessionRunHook, got str 'x'"),
    ([psflow.SessionRunHook], r"hooks\[0\] should be a SessionRunHook, got type <class"),
    ([None], r"hooks\[0\] should be a SessionRunHook, got None"),
    (3, r"hooks should be a sequence of SessionRunHook, or None, got int 3"),
    (psflow.SessionRunHook(), r"hooks should be a sequence of SessionRunHook, or None, got SessionRunHook"),
]
TAKERS = {
    "TrainSpec": lambda hooks: psflow.TrainSpec(examples, hooks=hooks),
    "EvalSpec": lambda hooks: psflow.EvalSpec(examples, hooks=hooks),
    "training_hooks": lambda hooks: psflow.EstimatorSpec("infer", predictions={}, training_hooks=hooks),
    "training_chief_hooks": lambda hooks: psflow.EstimatorSpec("infer", predictions={}, training_chief_hooks=hooks),
    "evaluation_hooks": lambda hooks: psflow.EstimatorSpec("infer", predictions={}, evaluation_hooks=hooks),
    "prediction_hooks": lambda hooks: psflow.EstimatorSpec("infer", predictions={}, prediction_hooks=hooks),
}


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
@pytest.mark.parametrize(("given", "said"), NO_HOOKS)
def test_what_is_no_hook_is_refused_where_it_is_given(take, given, said):
    with pytest.raises(UsageError, match=said):
        take(given)


@pytest.mark.parametrize("what", ["train", "evaluate", "predict"])
@pytest.mark.parametrize(("given", "said"), NO_HOOKS)
def test_what_is_no_hook_is_refused_by_the_estimator(estimator, what, given, said):
    with pytest.raises(UsageError, match=said):
        run(estimator, what, given)
    assert estimator.latest_checkpoint() is None


@pytest.mark.parametrize("given", [None, (), [], iter(())])
def test_no_hooks_are_none(given):
    assert as_hooks("hooks", given) == ()


@pytest.mark.parametrize("take", TAKERS.values(), ids=TAKERS)
@pytest.mark.parametrize("given", [None, [], ()])
def test_none_is_taken_as_no_hooks(take, given):
    take(given)


@pytest.mark.parametrize("what", ["train", "evaluate", "predict"])
def test_the_estimator_takes_none_as_no_hooks(subject, what):
    run(subject, what, None)


# The context

LOOP_FETCHES = {"train": "loss", "evaluate": "loss", "predict": ["y"]}


@pytest.mark.parametrize("what", LOOP_FETCHES)
def test_the_context_says_what_the_loop_fetches(subject, what):
    seen = []

    class Seeing(psflow.SessionRunHook):
        def before_run(self, run_context):
            seen.append(run_context.original_args)

    run(subject, what, [Seeing()])
    assert seen == [psflow.SessionRunArgs(LOOP_FETCHES[what])] * 3


def test_a_context_can_be_made_to_test_a_hook():
    session = SimpleNamespace(global_step=10)
    context = psflow.SessionRunContext(psflow.SessionRunArgs("loss"), session)
    hook = psflow.StopAtStepHook(last_step=10)
    hook.after_create_session(session, context.coordinator)
    hook.after_run(context, psflow.SessionRunValues(9))
    assert not context.stop_requested
    assert "coordinator" not in repr(context)
    hook.after_run(context, psflow.SessionRunValues(10))
    assert context.stop_requested


@pytest.mark.parametrize(("what", "runs"), [("train", 1), ("evaluate", 1), ("predict", 1)])
def test_a_hook_asks_to_stop(subject, what, runs):
    class Stopping(Fetching):
        def after_run(self, run_context, run_values):
            super().after_run(run_context, run_values)
            assert not run_context.stop_requested
            run_context.request_stop()
            assert run_context.stop_requested

    class After(psflow.SessionRunHook):
        seen = ()

        def after_run(self, run_context, run_values):
            self.seen += (run_context.stop_requested,)

    hook, after = Stopping("global_step", at_end="global_step"), After()
    found = run(subject, what, [hook, after])
    assert len(hook.results) == runs
    assert hook.last == hook.results[-1]  # `end` is called: nothing was raised
    assert after.seen == (True,)
    assert what != "evaluate" or found["mean"] == -0.25
    assert what != "predict" or len(found) == 2


def test_a_coordinator_ends_training_before_a_second_step(estimator):
    class Early(psflow.SessionRunHook):
        def after_create_session(self, session, coord):
            assert not coord.should_stop()
            coord.request_stop("enough seen")

    estimator.train(examples, [hook := Fetching("loss"), Early()])
    assert hook.results == []
    assert read_finished(estimator.model_dir).reason == "enough seen"


def test_who_asks_first_names_the_reason():
    coordinator = Coordinator()
    coordinator.request_stop("first")
    coordinator.end_training("second")
    assert (coordinator.stop_reason, coordinator.ends_training) == ("first", True)


# run_context.session.run, between the runs of the loop


def test_a_hook_runs_the_session_for_values_of_now(estimator):
    found = []

    class Asking(psflow.SessionRunHook):
        def after_create_session(self, session, coord):
            found.append(session.run(["w", "global_step"]))

        def after_run(self, run_context, run_values):
            found.append(run_context.session.run(["w", "global_step", "loss"]))

        def end(self, session):
            found.append(session.run({"w": "w", "loss": "loss"}))

    estimator.train(examples, [Asking()])
    assert found == [[1.0, 0], [0.5, 1, 0.5], [0.0, 2, 1.25], [-0.5, 3, 0.0], {"w": -0.5, "loss": 0.0}]


def test_before_the_first_run_there_is_no_loss(estimator):
    class Early(psflow.SessionRunHook):
        def after_create_session(self, session, coord):
            session.run("loss")

    with pytest.raises(UsageError, match="a hook fetches 'loss', which this step does not have"):
        estimator.train(examples, [Early()])


def test_hooks_without_a_session_do_nothing():
    calls = HookCalls((psflow.SessionRunHook(),), None)
    calls.begin()
    calls.after_create_session()
    calls.before_run(psflow.SessionRunArgs())
    calls.after_run({})
    calls.end()
    assert not calls.coordinator.should_stop()


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
    monkeypatch.setattr(hook_timer.time, "monotonic", lambda: clock.now)
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
    (lambda: psflow.SecondOrStepTimer(every_secs=float("nan")), "every_secs should be greater than 0, got nan"),
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
    (lambda: psflow.StopAtStepHook(), "takes num_steps or last_step, one of them; got num_steps=None, last_step=None"),
    (lambda: psflow.StopAtStepHook(1, 2), "one of them; got num_steps=1, last_step=2"),
    (lambda: psflow.NanTensorHook(False), "takes the loss first, got False: write fail_on_nan_loss=False"),
    (lambda: psflow.NanTensorHook("loss", "no"), "fail_on_nan_loss must be True or False, got 'no'"),
]


@pytest.mark.parametrize(("make", "said"), WRONG_PERIODS)
def test_a_hook_that_cannot_work_is_refused(make, said):
    with pytest.raises(UsageError, match=said):
        make()


# LoggingTensorHook


def lines_of(caplog, estimator, *arguments, what="train", **options):
    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.logging_hook"):
        run(estimator, what, [psflow.LoggingTensorHook(*arguments, **options)])
    found = [r.getMessage() for r in caplog.records if r.name == "psflow.ps_runtime.model.logging_hook"]
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
    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.logging_hook"):
        estimator.train(examples, [hook])
    first, second = (r.getMessage() for r in caplog.records if r.name == "psflow.ps_runtime.model.logging_hook")
    assert first == "loss = 0.5"
    assert second.startswith("loss = 0.0 (0.")
    assert second.endswith(" sec)")


# The others that ship

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
    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.batch_hooks"):
        trained.evaluate(examples, hooks=counters)
    assert [r for r in caplog.records if r.name == "psflow.ps_runtime.model.batch_hooks"] == []


def test_what_a_hook_reports_of_an_evaluation_is_logged(trained, caplog):
    class Reporting(psflow.SessionRunHook):
        def end(self, session):
            session.report(session.global_step, {"m": session.run("mean")})

    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.model.batch_hooks"):
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


def metrics_of(caplog, estimator, hooks):
    with caplog.at_level(logging.INFO, logger="psflow.ps_runtime.estimator.attempt"):
        estimator.train(examples, hooks)
    return [r.args[1] for r in caplog.records if r.args and isinstance(r.args[-1], psflow.Metrics)]


def test_the_chief_reports_what_a_hook_counts(caplog, estimator):
    found = metrics_of(caplog, estimator, [psflow.StepCounterHook(every_n_steps=2)])
    [counted] = [event for event in found if "steps_per_sec" in event.values and "loss" in event.values]
    assert (counted.step, counted.values["loss"]) == (2, 1.25)
    assert counted.values.keys() == {"loss", "steps_per_sec", "examples_per_sec", "staleness"}


@pytest.mark.parametrize(("arguments", "steps"), [({"save_steps": 2}, [2]), ({"save_secs": 1e-9}, [1, 2, 3])])
def test_the_chief_reports_summaries(caplog, estimator, arguments, steps):
    found = metrics_of(caplog, estimator, [psflow.SummarySaverHook(**arguments)])
    assert [event.step for event in found if "largest" in event.values] == steps
