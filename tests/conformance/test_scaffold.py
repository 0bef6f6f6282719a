"""Scaffold: first values, local preparation, readiness, and which checkpoints are kept."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from psflow import (
    BestExporter,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    ModeKeys,
    RunConfig,
    Saver,
    Scaffold,
    SessionRunHook,
    TrainSpec,
    embedding_lookup,
    get_variable,
    train_and_evaluate,
)
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import (
    ArgumentTypeError,
    ModelFnError,
    ModelFnTypeError,
    StoppedError,
    UsageError,
    WaitTimeoutError,
)
from psflow.ps_runtime.model.session_start import InitialSession, await_ready
from tests.conformance.programs import estimator_in, line, rows


def with_scaffold(model_fn: Any = line, *modes: str, **functions: Any) -> Any:
    """Return a model_fn whose EstimatorSpec has a Scaffold of these functions, in these modes or all."""

    def model(features, labels, mode):
        spec = model_fn(features, labels, mode)
        if modes and mode not in modes:
            return spec
        return EstimatorSpec(
            mode,
            spec.predictions,
            spec.loss,
            spec.train_op,
            spec.eval_metric_ops,
            training_hooks=spec.training_hooks,
            scaffold=Scaffold(**functions),
        )

    return model


def still(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """A model that learns nothing, so that values stay what they were at first."""
    w = get_variable("w", initializer=0.5)
    b = get_variable("b", (2,), initializer=lambda shape, dtype, rng: np.zeros(shape, dtype))
    y = w * features["x"]
    train_op = GradientDescent(0.0).apply_gradients({"w": np.float32(0), "b": np.zeros(2, np.float32)})
    return EstimatorSpec(mode, {"y": y}, np.mean(y) + b.sum(), train_op if mode == ModeKeys.TRAIN else None)


def raised_in(function: Any, kind: str) -> str:
    """Return a pattern of the error that says which function raised what as which one of a Scaffold, and where."""
    name, file, first = function.__qualname__, "tests/conformance/test_scaffold.py", function.__code__.co_firstlineno
    said = f"{__name__}:{name} raised ZeroDivisionError as {kind} of a Scaffold at {file}:{first + 1}: as planned"
    return f"^{re.escape(said)}$"


# init_fn


def test_init_fn_sets_first_values(make):
    def init(scaffold, session):
        assert scaffold.init_fn is init
        w, step = session.run(["w", "global_step"])
        assert (w, step) == (0.5, 0)
        session.load("w", w + 1)
        session.load("b", [3, 4])
        assert session.run("w") == 1.5

    estimator = make(with_scaffold(still, init_fn=init))
    estimator.train(rows, steps=1)
    assert estimator.get_variable_value("w") == np.float32(1.5)
    assert estimator.get_variable_value("b").tolist() == [3, 4]
    assert estimator.get_variable_value("b").dtype == np.float32


def test_what_is_read_may_be_changed_and_changes_nothing(make):
    def init(scaffold, session):
        session.run("b")[:] = 9

    estimator = make(with_scaffold(still, init_fn=init))
    estimator.train(rows, steps=1)
    assert estimator.get_variable_value("b").tolist() == [0, 0]


def test_init_fn_is_called_once_and_not_where_a_checkpoint_is_restored(make):
    calls = []
    estimator = make(with_scaffold(still, init_fn=lambda scaffold, session: calls.append(session.global_step)))
    estimator.train(rows, steps=1)
    estimator.train(rows, steps=1)
    estimator.evaluate(rows)
    list(estimator.predict(rows))
    assert calls == [0]


def test_init_fn_comes_after_a_warm_start(tmp_path):
    trained = estimator_in(tmp_path / "old", with_scaffold(still, init_fn=lambda s, session: session.load("w", 7)))
    trained.train(rows, steps=1)
    seen = []

    def init(scaffold, session):
        seen.append(float(session.run("w")))
        session.load("b", session.run("b") + 1)

    estimator = type(trained)(
        with_scaffold(still, init_fn=init),
        tmp_path / "new",
        RunConfig(tf_random_seed=1),
        warm_start_from=tmp_path / "old",
    )
    estimator.train(rows, steps=1)
    assert seen == [7]
    assert estimator.get_variable_value("w") == 7
    assert estimator.get_variable_value("b").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("v", 1, "init_fn: 'v' is not a variable"),
        ("wb", 1, "init_fn: 'wb' is not a variable; did you mean 'w'?"),
        ("items", 1, "init_fn: 'items' is a table, whose rows start with the values of its initializer"),
        ("w", [1.0], "init_fn: variable 'w' is float32[], got float64[1]"),
        ("w", "x", "init_fn: variable 'w' is float32[], got <U1[]"),
        ("w", 1j, "init_fn: variable 'w' is float32[], got complex128[]"),
        ("n", 1.5, "init_fn: variable 'n' is int64[], got float64[]"),
        ("w", float("nan"), "init_fn: variable 'w' got nan, expected finite numbers"),
        ("w", 1e300, "init_fn: variable 'w' got inf, expected finite numbers"),
    ],
)
def test_what_cannot_be_loaded_is_an_error_of_value(name, value, fault):
    values = {"w": np.float32(0), "n": np.asarray(3)}
    session = InitialSession(values, ["items"])
    with pytest.raises(ValueError, match=re.escape(fault)) as caught:
        session.load(name, value)
    assert type(caught.value) is ModelFnError
    assert (values["w"], values["n"]) == (0, 3)


def test_an_unknown_name_is_not_run():
    with pytest.raises(UsageError, match="'v'"):
        InitialSession({"w": np.float32(0)}, []).run("v")


def test_an_error_of_init_fn_ends_training_and_nothing_is_saved(make):
    def init(scaffold, session):
        raise ZeroDivisionError("as planned")

    estimator = make(with_scaffold(still, init_fn=init))
    with pytest.raises(ModelFnError, match=raised_in(init, "init_fn")):
        estimator.train(rows, steps=1)
    assert estimator.latest_checkpoint() is None


# local_init_fn and ready_fn


class Order(SessionRunHook):
    """Writes down when it is called."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def begin(self) -> None:
        self.calls.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.calls.append("after_create_session")

    def before_run(self, run_context: Any) -> None:
        self.calls.append("before_run")


def test_the_order_of_a_session(make):
    calls: list[str] = []
    functions = {
        "init_fn": lambda scaffold, session: calls.append("init"),
        "local_init_fn": lambda session: calls.append(f"local init {session.run('w')} {session.is_chief}"),
        "ready_fn": lambda session: calls.append("ready"),
    }
    estimator = make(with_scaffold(still, **functions))
    estimator.train(rows, hooks=[Order(calls)], steps=1)
    assert calls == ["init", "begin", "local init 0.5 True", "ready", "after_create_session", "before_run"]
    calls.clear()
    estimator.train(rows, hooks=[Order(calls)], steps=1)
    assert calls == ["begin", "local init 0.5 True", "ready", "after_create_session", "before_run"]


def test_evaluation_and_prediction_are_prepared_before_their_first_batch(make):
    prepared: list[float] = []

    def model(features, labels, mode):
        scale = prepared[0] if prepared else 0.0
        w = get_variable("w", initializer=0.5)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, {"y": scale * w * features["x"]})
        train_op = GradientDescent(0.0).apply_gradients({"w": np.float32(0)})
        return EstimatorSpec(mode, None, scale, train_op if mode == ModeKeys.TRAIN else None)

    estimator = make(with_scaffold(model, local_init_fn=lambda session: prepared.append(2.0)))
    estimator.train(rows, steps=1)
    prepared.clear()
    assert estimator.evaluate(rows)["loss"] == 2
    assert prepared == [2]
    prepared.clear()
    predicted = [float(row["y"]) for row in estimator.predict(rows)]
    np.testing.assert_allclose(predicted, np.arange(12) / 12, rtol=1e-6)


@pytest.mark.parametrize("mode", [ModeKeys.EVAL, ModeKeys.PREDICT])
def test_an_evaluation_or_prediction_asks_once_whether_it_is_ready(make, mode):
    asked = []

    def ready(session):
        asked.append(session.global_step)
        return "the table is missing"

    estimator = make(with_scaffold(line, mode, ready_fn=ready))
    estimator.train(rows, steps=1)
    with pytest.raises(UsageError, match="not ready; ready_fn of its Scaffold reports: the table is missing"):
        estimator.evaluate(rows) if mode == ModeKeys.EVAL else list(estimator.predict(rows))
    assert asked == [1]


@pytest.mark.parametrize("kind", ["local_init_fn", "ready_fn"])
@pytest.mark.parametrize("mode", [ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT])
def test_an_error_of_a_function_names_its_file_and_line(make, kind, mode):
    def fail(session):
        raise ZeroDivisionError("as planned")

    estimator = make(with_scaffold(line, mode, **{kind: fail}))
    calls = {
        ModeKeys.TRAIN: lambda: estimator.train(rows, steps=1),
        ModeKeys.EVAL: lambda: estimator.evaluate(rows),
        ModeKeys.PREDICT: lambda: list(estimator.predict(rows)),
    }
    if mode != ModeKeys.TRAIN:
        estimator.train(rows, steps=1)
    with pytest.raises(ModelFnError, match=raised_in(fail, kind)) as caught:
        calls[mode]()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class Times:
    """A clock that pauses move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.checks = 0

    def check(self) -> None:
        self.checks += 1

    def pause(self, secs: float) -> None:
        assert secs > 0
        self.now += secs


def wait(ready_fn: Any, timeout_secs: float, times: Times, session: Any = None) -> None:
    deadline = Deadline(timeout_secs, lambda: times.now)
    await_ready(Scaffold(ready_fn=ready_fn), session, "worker-1", deadline, times.check, times.pause)


def test_a_replica_waits_until_it_is_ready():
    times, answers, sessions = Times(), iter(["not yet", "nearly", None]), []

    def ready(session):
        sessions.append(session)
        return next(answers)

    wait(ready, 60, times, session="the session")
    assert (times.now, times.checks, sessions) == (0.5, 2, ["the session"] * 3)


def test_a_replica_that_does_not_become_ready_in_time_says_why():
    times = Times()
    with pytest.raises(WaitTimeoutError) as caught:
        wait(lambda session: f"it is {times.now}", 0.6, times)
    assert str(caught.value) == "worker-1 did not become ready within 0.6 s: ready_fn says: it is 0.6"


def test_a_replica_that_waits_can_be_stopped():
    times = Times()

    def check():
        raise StoppedError("worker-1", "as planned")

    times.check = check  # type: ignore[method-assign]
    with pytest.raises(StoppedError):
        wait(lambda session: "not yet", 60, times)


@pytest.mark.parametrize("answer", [True, False, "", [], 0, ["w"]])
def test_an_answer_that_is_no_sentence_is_an_error_of_type(answer):
    with pytest.raises(ModelFnTypeError, match=re.escape(f"else a sentence with the reason; got {answer!r}")):
        wait(lambda session: answer, 60, Times())


def test_training_fails_if_it_does_not_become_ready(make, monkeypatch):
    asked_for = []

    def passed(timeout_secs):
        asked_for.append(timeout_secs)
        return Deadline(0)

    monkeypatch.setattr("psflow.ps_runtime.roles.trainer.Deadline", passed)
    estimator = make(with_scaffold(ready_fn=lambda session: "no disk"), session_creation_timeout_secs=70)
    with pytest.raises(WaitTimeoutError, match="chief-0 did not become ready within 0 s: ready_fn says: no disk"):
        estimator.train(rows, steps=1)
    assert asked_for == [70]


class NoWriter:
    """Writes no export."""

    def write(self, directory: str, bundle: Any) -> None:
        raise AssertionError("nothing was to be exported")


def test_no_export_serves_what_only_a_session_prepares(make):
    estimator = make(with_scaffold(line, ModeKeys.PREDICT, local_init_fn=print))
    specs = TrainSpec(rows, max_steps=1), EvalSpec(rows, exporters=BestExporter(), throttle_secs=0, start_delay_secs=0)
    with pytest.raises(ModelFnError, match="has a Scaffold with local_init_fn in infer mode, which exports skip"):
        train_and_evaluate(estimator, *specs, writer=NoWriter())
    assert estimator.latest_checkpoint() is None


def test_planning_prepares_nothing(make):
    calls = []
    estimator = make(with_scaffold(line, ModeKeys.EVAL, local_init_fn=calls.append, ready_fn=lambda session: "never"))
    eval_spec = EvalSpec(rows, exporters=BestExporter(), throttle_secs=0, start_delay_secs=0)
    with pytest.raises(UsageError, match="ready_fn of its Scaffold reports: never"):
        train_and_evaluate(estimator, TrainSpec(rows, max_steps=1), eval_spec, writer=NoWriter())
    assert estimator.latest_checkpoint() is not None  # so it was the evaluator that asked
    assert len(calls) == 1


# saver


def kept(estimator: Any) -> list[int]:
    estimator.train(lambda: rows().repeat(), steps=8)
    return CheckpointStore(estimator.model_dir).steps()


@pytest.mark.parametrize(
    ("saver", "in_config", "steps"),
    [
        (Saver(max_to_keep=2), 5, [6, 8]),
        (Saver(max_to_keep=1), None, [8]),
        (Saver(max_to_keep=None), 1, [0, 2, 4, 6, 8]),
        (Saver(max_to_keep=0), 1, [0, 2, 4, 6, 8]),
        (Saver(), 1, [0, 2, 4, 6, 8]),
        (Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1e-9), 1, [2, 4, 6, 8]),
        (None, 2, [6, 8]),
    ],
)
def test_a_saver_says_which_checkpoints_are_kept(make, saver, in_config, steps):
    estimator = make(with_scaffold(saver=saver), save_checkpoints_steps=2, keep_checkpoint_max=in_config)
    assert kept(estimator) == steps
    assert estimator.config.keep_checkpoint_max == in_config


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"max_to_keep": -1}, "Saver.max_to_keep should be 0 or more, got -1"),
        ({"keep_checkpoint_every_n_hours": 0}, "Saver.keep_checkpoint_every_n_hours should be greater than 0, got 0"),
        (
            {"var_list": ["w"]},
            "Saver does not take var_list: there is no graph; a checkpoint of psflow holds all variables",
        ),
        ({"sharded": True}, "Saver does not take sharded"),
    ],
)
def test_what_a_saver_does_not_take_is_an_error_of_value(arguments, fault):
    with pytest.raises(UsageError, match=re.escape(fault)) as caught:
        Saver(**arguments)
    assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"max_to_keep": 2.5}, "Saver.max_to_keep should be a whole number, got float 2.5"),
        ({"keep_checkpoint_every_n_hours": None}, "Saver.keep_checkpoint_every_n_hours should be a number, got None"),
        ({"max_keep": 1}, "did you mean 'max_to_keep'?"),
    ],
)
def test_a_wrong_type_of_a_saver_is_an_error_of_type(arguments, fault):
    with pytest.raises(ArgumentTypeError, match=re.escape(fault)):
        Saver(**arguments)


# Scaffold itself


GRAPH_ONLY = {
    "init_op": "give init_fn(scaffold, session)",
    "init_feed_dict": "let init_fn read its values from a closure",
    "ready_op": "give ready_fn(session)",
    "ready_for_local_init_op": "local_init_fn is called once the variables have their values",
    "local_init_op": "give local_init_fn(session)",
    "local_init_feed_dict": "let local_init_fn read its values from a closure",
    "summary_op": "psflow.summary is written every save_summary_steps",
    "copy_from_scaffold": "create a Scaffold with the functions of the other one",
}


@pytest.mark.parametrize("name", GRAPH_ONLY)
def test_what_only_a_graph_has_is_refused_with_what_to_write_instead(name):
    fault = f"Scaffold does not take {name}: there is no graph; {GRAPH_ONLY[name]}"
    with pytest.raises(UsageError, match=re.escape(fault)) as caught:
        Scaffold(**{name: object()})
    assert not isinstance(caught.value, TypeError)


def test_none_stands_for_nothing():
    nothing = Scaffold(**dict.fromkeys(GRAPH_ONLY), init_fn=None, local_init_fn=None, ready_fn=None, saver=None)
    assert (nothing.init_fn, nothing.local_init_fn, nothing.ready_fn, nothing.saver) == (None, None, None, None)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"init_fn": 3}, "Scaffold.init_fn should be callable, got int 3"),
        ({"local_init_fn": "x"}, "Scaffold.local_init_fn should be callable, got str 'x'"),
        ({"ready_fn": []}, "Scaffold.ready_fn should be callable, got list []"),
        ({"saver": 3}, "Scaffold.saver should be a psflow.Saver or None, got int 3"),
        ({"init_fun": print}, "did you mean 'init_fn'?"),
    ],
)
def test_a_wrong_type_is_an_error_of_type(arguments, fault):
    with pytest.raises(ArgumentTypeError, match=re.escape(fault)):
        Scaffold(**arguments)


def test_all_faults_come_at_once():
    with pytest.raises(ArgumentTypeError) as caught:
        Scaffold(init_op=1, init_fn=3, saver=4)
    assert len(caught.value.faults) == 3


def test_the_scaffold_of_an_estimator_spec_is_one():
    with pytest.raises(
        ModelFnTypeError, match=r"EstimatorSpec.scaffold should be a psflow.Scaffold or None, got int 3"
    ):
        EstimatorSpec("eval", loss=1.0, scaffold=3)


def test_tables_are_not_loaded(make):
    def model(features, labels, mode):
        found = embedding_lookup("items", np.array([0, 1]), 5, 2)
        spec = still(features, labels, mode)
        return EstimatorSpec(mode, spec.predictions, spec.loss + 0 * found.sum(), spec.train_op)

    estimator = make(with_scaffold(model, init_fn=lambda scaffold, session: session.load("items", 1)))
    with pytest.raises(ModelFnError, match="'items' is a table"):
        estimator.train(rows, steps=1)


def test_arguments_are_named_and_have_the_defaults_of_the_original() -> None:
    saver = inspect.signature(Saver).parameters
    named = [name for name, parameter in saver.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    assert {name: saver[name].default for name in named} == {
        "max_to_keep": 5,
        "keep_checkpoint_every_n_hours": 10000.0,
    }
    scaffold = inspect.signature(Scaffold).parameters
    named = [name for name, parameter in scaffold.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    assert {name: scaffold[name].default for name in named} == dict.fromkeys(
        ("init_fn", "local_init_fn", "ready_fn", "saver")
    )
