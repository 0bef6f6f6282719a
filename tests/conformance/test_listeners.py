"""Listeners around checkpoints, and a user's own CheckpointSaverHook."""

from __future__ import annotations

import numpy as np
import pytest

import psflow
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import UsageError


def model_fn(features, labels, mode):
    w = psflow.get_variable("w", (), initializer=lambda shape, dtype, rng: np.ones(shape, dtype))
    op = psflow.GradientDescent(learning_rate=1.0).apply_gradients({"w": np.float32(1)})
    return psflow.EstimatorSpec(mode, {"y": w}, np.float32(2), op)


def endless():
    return psflow.Dataset({"x": np.arange(4, dtype=np.float32)}, np.zeros(4, np.float32)).batch(2).repeat()


@pytest.fixture
def make(tmp_path):
    def make_estimator(**config):
        config = psflow.RunConfig(tf_random_seed=1, **{"save_checkpoints_steps": 5, **config})
        return psflow.Estimator(model_fn, str(tmp_path / "model"), config)

    return make_estimator


class Listener(psflow.CheckpointSaverListener):
    """Notes its calls; its session is asked for `fetches` in `when`."""

    def __init__(self, name="", stop_at=None, when=None, fetches=None):
        self.heard, self.fetched = [], []
        self.name, self.stop_at, self.when, self.fetches = name, stop_at, when, fetches

    def note(self, when, session, global_step):
        assert session.global_step == global_step
        assert session.run("global_step") == global_step
        if when == self.when:
            self.fetched.append(session.run(self.fetches))
        self.heard.append(f"{self.name}{when} {global_step}")

    def begin(self):
        self.heard.append(f"{self.name}begin")

    def before_save(self, session, global_step):
        self.note("before", session, global_step)

    def after_save(self, session, global_step):
        self.note("after", session, global_step)
        return global_step == self.stop_at

    def end(self, session, global_step):
        self.note("end", session, global_step)


def heard_of(*steps, end):
    return ["begin", *(f"{when} {step}" for step in steps for when in ("before", "after")), f"end {end}"]


ENDS = [(1, (0, 1)), (5, (0, 5)), (7, (0, 5, 7)), (10, (0, 5, 10))]


@pytest.mark.parametrize(("max_steps", "saves"), ENDS)
def test_hears_of_the_start_of_each_period_and_of_the_end(make, max_steps, saves):
    make().train(endless, max_steps=max_steps, saving_listeners=[listener := Listener()])
    assert listener.heard == heard_of(*saves, end=max_steps)


def test_hears_of_no_checkpoint_twice_where_training_goes_on(make):
    make().train(endless, max_steps=5)
    make().train(endless, max_steps=12, saving_listeners=[listener := Listener()])
    assert listener.heard == heard_of(10, 12, end=12)


def test_listeners_are_called_in_their_order(make):
    first, second = Listener("1 "), Listener("2 ")
    second.heard = first.heard
    make().train(endless, max_steps=1, saving_listeners=[first, second])
    calls = ["begin", "before 0", "after 0", "before 1", "after 1", "end 1"]
    assert first.heard == [f"{name} {call}" for call in calls for name in (1, 2)]


READ = [
    ("after", "w", [1.0, -4.0, -6.0]),
    ("after", ["global_step", {"weight": "w"}], [[0, {"weight": 1.0}], [5, {"weight": -4.0}], [7, {"weight": -6.0}]]),
    ("end", ("w",), [(-6.0,)]),
    ("before", {"step": "global_step"}, [{"step": 0}, {"step": 5}, {"step": 7}]),
]


def test_reads_the_checkpoint(make):
    listeners = [Listener(when=when, fetches=fetches) for when, fetches, _ in READ]
    make().train(endless, max_steps=7, saving_listeners=listeners)
    assert [listener.fetched for listener in listeners] == [values for *_, values in READ]


def test_reads_variables_of_any_name(tmp_path):
    def named(features, labels, mode):
        gradients = {}
        for number, name in enumerate(("bias", "global_step/of", "weight")):
            psflow.get_variable(name, initializer=10.0 + number)
            gradients[name] = np.float32(-1)
        op = psflow.GradientDescent(learning_rate=1.0).apply_gradients(gradients)
        return psflow.EstimatorSpec(mode, loss=np.float32(2), train_op=op)

    listener = Listener(when="after", fetches=["bias", "global_step/of", "weight", "global_step"])
    config = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=5)
    psflow.Estimator(named, str(tmp_path), config).train(endless, max_steps=5, saving_listeners=[listener])
    assert listener.fetched == [[10, 11, 12, 0], [15, 16, 17, 5]]


UNREADABLE = [
    ("before", "w", "session.run fetches 'w', which this step does not have"),
    ("after", "ww", r"session.run fetches 'ww', .*; did you mean 'w'\?"),
    ("after", "loss", "session.run fetches 'loss', which"),
    ("after", 3, "session.run fetches 3; expected a name"),
]


@pytest.mark.parametrize(("when", "fetches", "said"), UNREADABLE)
def test_what_is_not_in_the_checkpoint_is_an_error_of_training(make, when, fetches, said):
    listener = Listener(when=when, fetches=fetches)
    with pytest.raises(UsageError, match=said):
        make().train(endless, max_steps=100_000, saving_listeners=[listener])
    assert f"{when} 0" not in listener.heard


def test_evaluates_from_a_listener(make):
    class Evaluating(psflow.CheckpointSaverListener):
        found = ()

        def after_save(self, session, global_step):
            data = psflow.Dataset({"x": np.zeros(2, np.float32)}, np.zeros(2, np.float32)).batch(2)
            self.found += (estimator.evaluate(lambda: data)["global_step"],)

    estimator = make()
    estimator.train(endless, max_steps=7, saving_listeners=[listener := Evaluating()])
    assert listener.found == (0, 5, 7)


ANSWERS = [(None, False), (False, False), (0, False), (True, True)]


@pytest.mark.parametrize(("answer", "stops"), ANSWERS)
def test_ends_training_by_what_after_save_returns(make, answer, stops):
    class Answering(psflow.CheckpointSaverListener):
        def after_save(self, session, global_step):
            return answer if global_step == 5 else None

    estimator = make()
    estimator.train(endless, max_steps=100_000 if stops else 9, saving_listeners=[Answering()])
    finished = read_finished(estimator.model_dir)
    assert (finished.reason == "Answering asked to stop after step 5") == stops
    assert (finished.final_step == 9) != stops


@pytest.mark.parametrize("call", ["begin", "before_save", "after_save", "end"])
def test_an_error_of_a_listener_is_that_of_training(make, call):
    def fail(*arguments):
        raise ZeroDivisionError("as planned")

    listener = Listener()
    setattr(listener, call, fail)
    with pytest.raises(ZeroDivisionError, match="as planned"):
        make().train(endless, max_steps=7 if call == "end" else 100_000, saving_listeners=[listener])


@pytest.mark.parametrize("given", [None, (), []])
def test_no_listeners_are_none(make, given):
    make().train(endless, max_steps=1, saving_listeners=given)


@pytest.mark.parametrize("config", [{"save_checkpoints_steps": None, "save_checkpoints_secs": None}])
def test_listeners_without_checkpoints_are_refused(make, config):
    said = "saving_listeners are called around checkpoints, but this training saves none; set save_checkpoints_steps or"
    estimator = make(**config)
    with pytest.raises(UsageError, match=said):
        estimator.train(endless, max_steps=1, saving_listeners=[Listener()])
    spec = psflow.TrainSpec(endless, 1, saving_listeners=[Listener()])
    with pytest.raises(UsageError, match=said):
        psflow.train_and_evaluate(estimator, spec, psflow.EvalSpec(endless, 1))


# CheckpointSaverHook

SAVES = [
    ({"save_steps": 2}, {}, [0, 2, 4, 5]),
    ({"save_steps": 100}, {}, [0, 5]),
    ({"save_secs": 3600}, {}, [0, 5]),
    ({"save_steps": 3}, {"save_checkpoints_steps": None, "save_checkpoints_secs": None}, [0, 3, 5]),
    ({"save_steps": 2}, {"save_checkpoints_steps": None, "save_checkpoints_secs": 600}, [0, 2, 4, 5]),
]


@pytest.mark.parametrize(("period", "config", "steps"), SAVES)
def test_a_hook_says_when_to_save(make, period, config, steps):
    estimator = make(**{"save_checkpoints_steps": 1, **config})
    estimator.train(endless, [psflow.CheckpointSaverHook(estimator.model_dir, **period)], max_steps=5)
    assert CheckpointStore(estimator.model_dir).steps() == steps


def test_listeners_of_the_hook_come_first_and_each_is_called_once(make):
    first, second = Listener("1 "), Listener("2 ")
    second.heard = first.heard
    hook = psflow.CheckpointSaverHook(save_steps=100, listeners=[first])
    make().train(endless, [hook], max_steps=1, saving_listeners=[second, first])
    calls = ["begin", "before 0", "after 0", "before 1", "after 1", "end 1"]
    assert first.heard == [f"{name} {call}" for call in calls for name in (1, 2)]


def test_the_hook_leaves_the_others_where_they_are(make):
    stop = psflow.StopAtStepHook(last_step=3)
    estimator = make()
    estimator.train(endless, [psflow.CheckpointSaverHook(save_steps=2), stop])
    assert CheckpointStore(estimator.model_dir).steps() == [0, 2, 3]


WRONG = [
    (lambda: [psflow.CheckpointSaverHook()], "give exactly one of save_secs and save_steps, got none"),
    (lambda: [psflow.CheckpointSaverHook("x", 1, 1)], r"got \['save_secs', 'save_steps'\]"),
    (lambda: [psflow.CheckpointSaverHook(save_steps=0)], "save_steps should be greater than 0, got 0"),
    (lambda: [psflow.CheckpointSaverHook(save_steps=1)] * 2, "training takes one CheckpointSaverHook, got 2"),
    (
        lambda: [psflow.CheckpointSaverHook("elsewhere", save_steps=1)],
        "checkpoint_dir of CheckpointSaverHook is 'elsewhere', but checkpoints are in the model_dir, .*; leave it out",
    ),
]


@pytest.mark.parametrize(("hooks", "said"), WRONG)
def test_a_hook_that_cannot_save_is_refused(make, hooks, said):
    estimator = make()
    with pytest.raises(UsageError, match=said):
        estimator.train(endless, hooks(), max_steps=1)
    assert estimator.latest_checkpoint() is None


@pytest.mark.parametrize("place", ["training_hooks", "training_chief_hooks", "evaluation_hooks"])
def test_a_hook_where_it_has_no_effect_is_refused(tmp_path, place):
    def with_hooks(features, labels, mode):
        spec = model_fn(features, labels, mode)
        hooks = {place: [psflow.CheckpointSaverHook(save_steps=1)]}
        return psflow.EstimatorSpec(mode, spec.predictions, spec.loss, spec.train_op, **hooks)

    estimator = psflow.Estimator(with_hooks, str(tmp_path / "model"), psflow.RunConfig(tf_random_seed=1))
    said = "works only in the hooks of Estimator.train or of a TrainSpec; move it there"
    if place == "evaluation_hooks":
        estimator.train(endless, max_steps=1)
        with pytest.raises(UsageError, match=said):
            estimator.evaluate(endless, 1)
    else:
        with pytest.raises(UsageError, match=said):
            estimator.train(endless, max_steps=1)
