"""Hooks as an Estimator's user knows them: the calls, what they fetch, what they may be given."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import psflow
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.hooks.base import Coordinator, HookCalls, as_hooks
from tests.conformance.hooked import Fetching, examples, run


@pytest.fixture
def subject(what, request):
    """A new Estimator to train, or one that has trained."""
    return request.getfixturevalue("estimator" if what == "train" else "trained")


# What may be fetched

TRAINING = [
    ("loss", [0.5, 1.25, 0.0]),
    ("global_step", [1, 2, 3]),
    ("w", [1.0, 0.5, 0.0]),
    ("largest", [1.0, 3.0, 5.0]),
    ("mean", [0.5, 1.25, 0.0]),
    (["loss", "w"], [[0.5, 1.0], [1.25, 0.5], [0.0, 0.0]]),
    (("loss",), [(0.5,), (1.25,), (0.0,)]),
    ({"a": "w", "b": ["global_step"]}, [{"a": 1.0, "b": [1]}, {"a": 0.5, "b": [2]}, {"a": 0.0, "b": [3]}]),
    (None, [None] * 3),
    ((), [()] * 3),
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
    ("train", "lost", r"the hook Fetching fetches 'lost', which this step does not have; did you mean 'loss'\?"),
    ("train", ["loss", "W"], "the hook Fetching fetches 'W'"),
    ("train", 3, "the hook Fetching fetches 3; expected a name, or a list or dict of names, such as 'loss'"),
    ("train", {"a": None, "b": 1.5}, r"the hook Fetching fetches 1\.5; expected a name"),
    ("evaluate", "meen", r"the hook Fetching fetches 'meen', .*; did you mean 'mean'\?"),
    (
        "evaluate",
        "largest",
        "the hook Fetching fetches 'largest', which this step does not have; it has global_step, loss, mean, w, y$",
    ),
    ("predict", "loss", "the hook Fetching fetches 'loss'"),
    ("predict", "yy", r"the hook Fetching fetches 'yy', .*; did you mean 'y'\?"),
]


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

    with pytest.raises(UsageError, match=r"session\.run fetches 'loss', which this step does not have"):
        estimator.train(examples, [Early()])


def test_hooks_without_a_session_do_nothing():
    calls = HookCalls((psflow.SessionRunHook(),), None)
    calls.begin()
    calls.after_create_session()
    calls.before_run(psflow.SessionRunArgs())
    calls.after_run({})
    calls.end()
    assert not calls.coordinator.should_stop()
