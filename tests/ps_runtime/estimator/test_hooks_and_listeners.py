"""Calls of hooks and listeners in a training in one process, and the fetches of a hook."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.errors import (
    UsageError,
)
from psflow.ps_runtime.model.hooks.base import CheckpointSaverListener, SessionRunArgs, SessionRunHook
from psflow.ps_runtime.model.spec import EstimatorSpec
from tests.ps_runtime.estimator.regression import (
    FailAt,
    records,
    regression,
    shuffled,
    steps_of,
)


class Listener(CheckpointSaverListener):
    def __init__(self, stop_at=None):
        self.heard = []
        self.stop_at = stop_at

    def begin(self):
        self.heard.append("begin")

    def before_save(self, session, global_step):
        self.heard.append(f"before {global_step}")

    def after_save(self, session, global_step):
        self.heard.append(f"after {global_step}")
        return global_step == self.stop_at

    def end(self, session, global_step):
        self.heard.append(f"end {global_step}")


def test_listeners_hear_of_every_checkpoint(make):
    listener = Listener()
    make().train(shuffled, max_steps=7, saving_listeners=[listener])
    saves = [f"{when} {step}" for step in (0, 5, 7) for when in ("before", "after")]
    assert listener.heard == ["begin", *saves, "end 7"]


def test_a_listener_ends_training(make):
    listener = Listener(stop_at=5)
    estimator = make()
    estimator.train(shuffled, max_steps=100_000, saving_listeners=[listener])
    final = steps_of(estimator.model_dir)[-1]
    assert final < 100_000
    assert listener.heard[-1] == f"end {final}"
    assert read_finished(estimator.model_dir).reason == "Listener asked to stop after step 5"


def test_an_error_of_a_listener_is_the_error_of_training(make):
    class Failing(Listener):
        def after_save(self, session, global_step):
            raise ZeroDivisionError("as planned")

    listener = Failing()
    with pytest.raises(ZeroDivisionError, match="as planned"):
        make().train(shuffled, max_steps=100_000, saving_listeners=[listener])
    assert listener.heard == ["begin", "before 0"]


def test_hooks_are_told_in_order_and_of_the_end_only_when_all_is_well(make):
    heard = []

    class Telling(SessionRunHook):
        def __init__(self, name):
            self.name = name

        def begin(self):
            heard.append(f"{self.name} begin")

        def after_create_session(self, session, coord):
            heard.append(f"{self.name} created at {session.global_step}")

        def before_run(self, run_context):
            heard.append(f"{self.name} before")

        def after_run(self, run_context, run_values):
            heard.append(f"{self.name} after")

        def end(self, session):
            heard.append(f"{self.name} end at {session.global_step}")

    def with_hooks(features, labels, mode):
        spec = regression(features, labels, mode)
        hooks = {"training_hooks": [Telling("spec")], "training_chief_hooks": [Telling("chief")]}
        return EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op, **hooks)

    estimator = make(model_fn=with_hooks)
    estimator.train(shuffled, [Telling("user")], max_steps=2)
    calls = ["begin", "created at 0", "before", "after", "before", "after", "end at 2"]
    assert heard == [f"{name} {call}" for call in calls for name in ("chief", "user", "spec")]
    failing = FailAt(3)
    with pytest.raises(ZeroDivisionError):
        estimator.train(shuffled, [failing], max_steps=4)
    assert not failing.ended


def test_a_hook_may_fetch_all_that_a_step_has(make):
    fetched = []

    class Fetching(SessionRunHook):
        def before_run(self, run_context):
            names = ["loss", "global_step", "row", "mae", "bias", "w", "b"]
            return SessionRunArgs({name: name for name in names})

        def after_run(self, run_context, run_values):
            fetched.append(run_values.results)

    estimator = make()
    estimator.train(records, [Fetching()], max_steps=2)
    first, second = fetched
    assert first["row"].tolist() == [0, 1, 2, 3]
    assert type(first["loss"]) is float
    assert [step["global_step"] for step in fetched] == [1, 2]
    assert 0 < first["mae"] == pytest.approx(np.sqrt(first["loss"]), rel=0.5)
    assert not np.array_equal(first["w"], second["w"])  # a copy, not the arena that the next pull overwrites


def test_a_fetch_of_an_unknown_name_is_refused(make):
    class Wrong(SessionRunHook):
        def before_run(self, run_context):
            return SessionRunArgs("los")

    with pytest.raises(UsageError, match=r"the hook Wrong fetches 'los', .*did you mean 'loss'"):
        make().train(shuffled, [Wrong()], max_steps=2)
