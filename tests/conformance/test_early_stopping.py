"""Early stopping as an Estimator's user knows it, and what must not be left behind of it."""

from __future__ import annotations

import math
import pickle
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

import psflow
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord, read_finished
from psflow.ps_runtime.errors import CheckpointError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.metrics.base import Metric
from psflow.ps_runtime.model.hooks import base
from tests.ps_runtime.roles.conftest import roles  # noqa: F401  (a fixture)

NAN = math.nan


def model_fn(features, labels, mode):
    w = psflow.get_variable("w", (), initializer=lambda shape, dtype, rng: np.ones(shape, dtype))
    op = psflow.GradientDescent(learning_rate=1.0).apply_gradients({"w": np.float32(1)})
    metric = {"falling": psflow.metrics.mean(w), "constant": psflow.metrics.mean(0 * w)}
    return psflow.EstimatorSpec(mode, {"y": w}, np.float32(2), op, metric)


def examples():
    return psflow.Dataset({"x": np.arange(4, dtype=np.float32)}, np.zeros(4, np.float32)).batch(2)


def endless():
    return examples().repeat()


@pytest.fixture
def estimator(tmp_path):
    config = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=3)
    (tmp_path / "model").mkdir()
    return psflow.Estimator(model_fn, str(tmp_path / "model"), config)


def note(estimator, values, name="", metric="m"):
    """Write evaluations as an evaluator does, given a metric by global_step."""
    log = EvaluationLog(estimator.model_dir)
    for step, value in values.items():
        metrics = {metric: value, "loss": 1.0, "global_step": step}
        log.append(EvaluationRecord(name, step, float(step), metrics, 1000.0 + step))


def decides(hook, global_step=1):
    """Return the reason for which a hook ends training after one step; "" if it does not."""
    session = SimpleNamespace(is_chief=True)
    context = psflow.SessionRunContext(psflow.SessionRunArgs(), session)
    hook.begin()
    hook.before_run(context)
    hook.after_run(context, psflow.SessionRunValues(global_step))
    assert context.coordinator.ends_training is context.stop_requested
    return context.coordinator.stop_reason or ""


# A threshold

HIGHER = [
    ({}, {}, ""),
    ({10: 0.5}, {}, ""),
    ({10: 0.8}, {}, ""),
    ({10: 0.81}, {}, "m of step 10 is 0.81, higher than 0.8"),
    ({10: 0.1, 20: 0.9, 30: 0.1}, {}, "m of step 20 is 0.9, higher than 0.8"),
    ({10: 0.9}, {"min_steps": 10}, "m of step 10 is 0.9, higher than 0.8"),
    ({10: 0.9}, {"min_steps": 11}, ""),
    ({10: 0.9, 20: 0.5}, {"min_steps": 11}, ""),
    ({10: NAN}, {}, ""),
    ({10: math.inf}, {}, "m of step 10 is inf, higher than 0.8"),
]
LOWER = [
    ({}, {}, ""),
    ({10: 0.8}, {}, ""),
    ({10: 0.79}, {}, "m of step 10 is 0.79, lower than 0.8"),
    ({10: 0.9, 20: 0.3}, {}, "m of step 20 is 0.3, lower than 0.8"),
    ({10: 0.3, 20: 0.9}, {"min_steps": 20}, ""),
    ({10: NAN}, {}, ""),
    ({10: -math.inf}, {}, "m of step 10 is -inf, lower than 0.8"),
]


@pytest.mark.parametrize(
    ("make", "values", "options", "reason"),
    [(psflow.stop_if_higher_hook, *case) for case in HIGHER] + [(psflow.stop_if_lower_hook, *case) for case in LOWER],
)
def test_stops_beyond_a_threshold(estimator, make, values, options, reason):
    note(estimator, values)
    found = decides(make(estimator, "m", 0.8, **options))
    assert found == (f"early stopping at global_step 1: {reason}" if reason else "")


# No change for the better

NO_DECREASE = [
    ({}, {}, ""),
    ({10: 1.0}, {}, ""),
    ({10: 1.0, 29: 1.0}, {}, ""),
    ({10: 1.0, 30: 1.0}, {}, "no decrease of m for 20 steps since step 10"),
    ({10: 1.0, 35: 2.0}, {}, "no decrease of m for 25 steps since step 10"),
    ({10: 1.0, 20: 0.9, 30: 0.8, 40: 0.7}, {}, ""),
    ({10: 1.0, 20: 0.9, 30: 1.5, 40: 0.95}, {}, "no decrease of m for 20 steps since step 20"),
    ({10: 1.0, 20: 1.1, 30: 0.5}, {}, ""),  # lower again in time
    ({10: 0.1, 20: 1.0, 39: 1.0}, {"min_steps": 20}, ""),
    ({10: 0.1, 20: 1.0, 40: 1.0}, {"min_steps": 20}, "no decrease of m for 20 steps since step 20"),
    ({10: NAN, 20: 1.0, 35: 1.0}, {}, ""),  # any number is better than NaN
    ({10: NAN, 20: NAN, 30: NAN}, {}, "no decrease of m for 20 steps since step 10"),
    ({10: 1.0, 20: NAN, 30: NAN}, {}, "no decrease of m for 20 steps since step 10"),
]
NO_INCREASE = [
    ({10: 1.0, 29: 1.0}, {}, ""),
    ({10: 1.0, 30: 1.0}, {}, "no increase of m for 20 steps since step 10"),
    ({10: 1.0, 20: 1.1, 30: 1.2}, {}, ""),
    ({10: 1.0, 20: 1.1, 40: 0.2}, {}, "no increase of m for 20 steps since step 20"),
    ({10: NAN, 20: 0.0, 35: 0.0}, {}, ""),
]


@pytest.mark.parametrize(
    ("make", "values", "options", "reason"),
    [(psflow.stop_if_no_decrease_hook, *case) for case in NO_DECREASE]
    + [(psflow.stop_if_no_increase_hook, *case) for case in NO_INCREASE],
)
def test_stops_without_a_change_for_the_better(estimator, make, values, options, reason):
    note(estimator, values)
    found = decides(make(estimator, "m", 20, **options))
    assert found == (f"early stopping at global_step 1: {reason}" if reason else "")


def test_zero_steps_without_a_decrease_stop_at_the_first_evaluation(estimator):
    note(estimator, {10: 1.0})
    assert "for 0 steps since step 10" in decides(psflow.stop_if_no_decrease_hook(estimator, "m", 0))


ALL = [
    psflow.stop_if_higher_hook,
    psflow.stop_if_lower_hook,
    psflow.stop_if_no_increase_hook,
    psflow.stop_if_no_decrease_hook,
]


# Which evaluations


@pytest.mark.parametrize("name", [None, "test", "test_2", "eval"])
def test_looks_at_the_evaluation_that_eval_dir_names(estimator, name):
    note(estimator, {10: 0.1})
    note(estimator, {10: 0.1}, "other")
    EvaluationLog(estimator.model_dir).append(EvaluationRecord(name or "", 20, 20.0, {"m": 0.9}, 1.0))
    hook = psflow.stop_if_higher_hook(estimator, "m", 0.8, estimator.eval_dir(name))
    assert "m of step 20 is 0.9" in decides(hook)
    others = [n for n in (None, "other") if n != name]
    for other in others:
        assert decides(psflow.stop_if_higher_hook(estimator, "m", 0.8, estimator.eval_dir(other))) == ""


def test_warns_where_only_other_evaluations_are(estimator, caplog):
    note(estimator, {10: 0.9}, "test")
    assert decides(psflow.stop_if_higher_hook(estimator, "m", 0.8)) == ""
    assert "but only those of 'test' exist; pass eval_dir=estimator.eval_dir(name)" in caplog.text


def test_does_not_warn_before_the_first_evaluation(estimator, caplog):
    assert decides(psflow.stop_if_higher_hook(estimator, "m", 0.8)) == ""
    assert caplog.text == ""


@pytest.mark.parametrize("make", ALL)
def test_a_metric_that_is_not_measured_is_refused(estimator, make, caplog):
    hook = make(estimator, "acuracy", 1)
    words = "early stopping reads the metric 'acuracy', but the evaluation of step {} has accuracy, loss; did you"
    note(estimator, {10: 0.9}, metric="accuracy")
    assert decides(hook) == "", "it may be of a training before, whose model had no such metric"
    assert words.format(10) in caplog.text
    note(estimator, {20: 0.9}, metric="accuracy")
    with pytest.raises(UsageError, match=words.format(20)):
        decides(hook)


@pytest.mark.parametrize("make", ALL)
def test_the_first_evaluation_of_a_new_training_must_have_the_metric(estimator, make):
    hook = make(estimator, "acuracy", 1)
    assert decides(hook) == ""
    note(estimator, {10: 0.9}, metric="accuracy")
    with pytest.raises(UsageError, match="but the evaluation of step 10 has accuracy, loss; did you mean 'accuracy'"):
        decides(hook)


@pytest.mark.parametrize("make", ALL)
def test_evaluations_of_a_training_before_may_lack_the_metric(estimator, make):
    hook = make(estimator, "auc", 1)
    note(estimator, {10: 0.9, 20: 0.9}, metric="accuracy")
    assert decides(hook) == ""
    note(estimator, {30: 1.0}, metric="auc")
    assert decides(hook) == ""
    note(estimator, {40: 1.0}, metric="auc")
    assert ("auc" in decides(hook)) is (make in ALL[2:])


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize("eval_dir", ["", "eval_", "/models/one", "/models/one/evals"])
def test_an_eval_dir_of_no_evaluation_is_refused(estimator, make, eval_dir):
    with pytest.raises(UsageError, match=r"eval_dir must be what estimator.eval_dir\(name\) returns, got"):
        make(estimator, "m", 1, eval_dir)


def test_reads_metrics_by_step_in_order(estimator):
    note(estimator, {30: 3.0, 10: 1.0})
    note(estimator, {20: 2.0}, "test")
    assert psflow.read_eval_metrics(estimator.eval_dir()) == {10: {"m": 1.0, "loss": 1.0}, 30: {"m": 3.0, "loss": 1.0}}
    assert list(psflow.read_eval_metrics(estimator.eval_dir())) == [10, 30]
    assert psflow.read_eval_metrics(estimator.eval_dir("test")) == {20: {"m": 2.0, "loss": 1.0}}
    assert psflow.read_eval_metrics(estimator.eval_dir("none")) == {}


def test_a_step_that_was_evaluated_again_has_its_newest_metrics(estimator):
    note(estimator, {10: 1.0})
    note(estimator, {10: 2.0})
    assert psflow.read_eval_metrics(estimator.eval_dir())[10]["m"] == 2.0


def test_a_damaged_record_is_an_error(estimator, tmp_path):
    note(estimator, {10: 1.0})
    path = tmp_path / "model" / "evaluations.jsonl"
    path.write_text(path.read_text() + "{nonsense\n")
    with pytest.raises(CheckpointError, match="line 2 is damaged"):
        psflow.read_eval_metrics(estimator.eval_dir())


@pytest.mark.parametrize(("name", "last"), [(None, "eval"), ("", "eval"), ("test", "eval_test")])
def test_eval_dir_lies_in_the_model_dir(estimator, name, last):
    assert estimator.eval_dir(name) == f"{estimator.model_dir}/{last}"


# When it looks


def test_looks_every_so_many_steps(estimator):
    asked = []
    hook = psflow.make_early_stopping_hook(estimator, lambda: asked.append(1), None, 10)
    session = SimpleNamespace(is_chief=True)
    hook.begin()
    for step in (1, 5, 10, 11, 12, 21, 50):
        before = len(asked)
        context = psflow.SessionRunContext(psflow.SessionRunArgs(), session)
        hook.after_run(context, psflow.SessionRunValues(step))
        assert (len(asked) > before) == (step in (1, 11, 21, 50))
        assert not context.stop_requested


def test_looks_every_minute_by_default(estimator, monkeypatch):
    clock = SimpleNamespace(now=10.0)
    monkeypatch.setattr(base.time, "monotonic", lambda: clock.now)
    asked = []
    hook = psflow.make_early_stopping_hook(estimator, lambda: asked.append(clock.now))
    context = psflow.SessionRunContext(psflow.SessionRunArgs(), SimpleNamespace(is_chief=True))
    hook.begin()
    for step, clock.now in enumerate((10.0, 69.9, 70.0, 100.0, 130.0)):
        hook.after_run(context, psflow.SessionRunValues(step))
    assert asked == [10.0, 70.0, 130.0]


def test_only_the_chief_looks(estimator):
    def fail():
        raise AssertionError("asked on a worker")

    hook = psflow.make_early_stopping_hook(estimator, fail)
    context = psflow.SessionRunContext(psflow.SessionRunArgs(), SimpleNamespace(is_chief=False))
    hook.begin()
    hook.after_run(context, psflow.SessionRunValues(1))
    assert not context.stop_requested


ANSWERS = [
    (False, ""),
    (None, ""),
    (0, ""),
    ("", ""),
    (True, "early stopping at global_step 7"),
    (1, "early stopping at global_step 7"),
    ("it is late", "early stopping at global_step 7: it is late"),
]


@pytest.mark.parametrize(("answer", "reason"), ANSWERS)
def test_any_predicate_decides(estimator, answer, reason):
    assert decides(psflow.make_early_stopping_hook(estimator, lambda: answer), 7) == reason


@pytest.mark.parametrize("make", ALL)
def test_travels_to_the_roles_of_a_cluster(estimator, make):
    note(estimator, {10: 1.0, 20: 1.0})
    hook = make(estimator, "m", 5)
    there = pickle.loads(cloudpickle.dumps(hook))
    assert decides(there) == decides(hook)


WRONG = [
    (lambda e: psflow.make_early_stopping_hook(e, bool, "x"), "run_every_secs should be a number, got str 'x'"),
    (lambda e: psflow.stop_if_higher_hook(e, None, 1), "metric_name should be a str, got None"),
    (lambda e: psflow.stop_if_higher_hook(e, "m", "x"), "threshold should be a number, got str 'x'"),
    (lambda e: psflow.stop_if_lower_hook(e, "m", float("nan")), "threshold should be a number, got float nan"),
    (lambda e: psflow.stop_if_lower_hook(e, "m", 1, eval_dir=3), "eval_dir should be a str or None, got int 3"),
    (lambda e: psflow.stop_if_lower_hook(e, "m", 1, min_steps=-1), "min_steps should be 0 or more, got -1"),
    (lambda e: psflow.stop_if_no_increase_hook(e, "m", None), "max_steps_without_increase should be a whole number, g"),
    (lambda e: psflow.stop_if_no_decrease_hook(e, "m", -1), "max_steps_without_decrease should be 0 or more, got -1"),
    (lambda e: psflow.make_early_stopping_hook("model", bool), "estimator must be an Estimator, got str"),
    (lambda e: psflow.make_early_stopping_hook(e, 3), "should_stop_fn must be callable, got 3"),
    (lambda e: psflow.make_early_stopping_hook(None, 3), "(?s)estimator must be .*should_stop_fn must be callable"),
    (lambda e: psflow.make_early_stopping_hook(e, bool, 60, 10), "give exactly one of run_every_secs and run_every_st"),
    (lambda e: psflow.make_early_stopping_hook(e, bool, None), "give exactly one of .*, got none"),
    (lambda e: psflow.make_early_stopping_hook(e, bool, 0), "run_every_secs should be greater than 0, got 0"),
    (lambda e: psflow.make_early_stopping_hook(e, bool, None, 0), "run_every_steps should be greater than 0, got 0"),
    (lambda e: psflow.stop_if_higher_hook(None, "m", 1), "estimator must be an Estimator, got NoneType"),
    (lambda e: psflow.stop_if_lower_hook(e, "m", 1, run_every_steps=5), r"got \['run_every_secs', 'run_every_steps'\]"),
]


@pytest.mark.parametrize(("make", "said"), WRONG)
def test_a_hook_that_cannot_work_is_refused(estimator, make, said):
    with pytest.raises(UsageError, match=said):
        make(estimator)


def test_a_hook_in_an_evaluation_is_refused(estimator):
    estimator.train(examples)
    with pytest.raises(UsageError, match="early stopping works only in training"):
        estimator.evaluate(examples, hooks=[psflow.make_early_stopping_hook(estimator, bool)])
    with pytest.raises(UsageError, match="leave it out of evaluations"):
        estimator.evaluate(examples, hooks=[psflow.InMemoryEvaluatorHook(estimator, examples)])


# Whole jobs


def stopping(estimator, **options):
    """Stop once the evaluated w is below -5: after some checkpoint of step 9 or later."""
    return psflow.stop_if_lower_hook(estimator, "falling", -5.0, run_every_secs=None, run_every_steps=1, **options)


def eval_spec(**options):
    return psflow.EvalSpec(examples, None, start_delay_secs=0, throttle_secs=0, **options)


def assert_ended_in_order(estimator):
    finished = read_finished(estimator.model_dir)
    assert finished.final_step < 1_000_000
    assert "falling of step " in finished.reason
    assert "lower than -5.0" in finished.reason
    assert estimator.latest_checkpoint().endswith(f"step_{finished.final_step:08d}")
    assert estimator.get_variable_value("w") == 1 - finished.final_step  # no push is lost
    assert estimator.get_variable_names() == ["global_step", "w"]  # and no flag is among the variables
    return finished.final_step


def test_training_and_evaluation_end_in_order(estimator):
    spec = psflow.TrainSpec(endless, 1_000_000, [stopping(estimator)])
    reports = psflow.train_and_evaluate(estimator, spec, eval_spec())
    final = assert_ended_in_order(estimator)
    assert max(psflow.read_eval_metrics(estimator.eval_dir())) == final
    assert reports["evaluator-0"]["statistics"]["evaluated_steps"][-1] == final


def test_a_job_that_was_stopped_early_trains_on_without_the_hook(estimator):
    psflow.train_and_evaluate(estimator, psflow.TrainSpec(endless, 1_000_000, [stopping(estimator)]), eval_spec())
    final = read_finished(estimator.model_dir).final_step
    estimator.train(endless, max_steps=final + 7)
    assert read_finished(estimator.model_dir).final_step == final + 7


def test_a_metric_without_change_stops_training(estimator):
    hook = psflow.stop_if_no_decrease_hook(estimator, "constant", 6, run_every_secs=None, run_every_steps=1)
    psflow.train_and_evaluate(estimator, psflow.TrainSpec(endless, 1_000_000, [hook]), eval_spec())
    assert "no decrease of constant for 6 steps since step 0" in read_finished(estimator.model_dir).reason


def test_the_chief_stops_all_replicas(roles, estimator):  # noqa: F811
    spec = psflow.TrainSpec(endless, 1_000_000, [stopping(estimator)])
    with Attempt(estimator, spec, None, num_workers=2) as attempt:
        note(estimator, {0: -6.0}, metric="falling")  # as an evaluator beside them does
        reports = roles.train(attempt.job())
    assert {report["exit"] for report in reports.values()} == {"finished"}
    assert_ended_in_order(estimator)


# Evaluations that nobody makes


@pytest.mark.parametrize(
    ("given", "eval_names", "said"),
    [
        (
            None,
            [],
            "{dir}/eval, but this training makes none: give train_and_evaluate an EvalSpec without a name\n",
        ),
        (
            "test",
            ["", "dev"],
            "{dir}/eval_test, but this training makes only those of an EvalSpec without a name, 'dev': give "
            "train_and_evaluate an EvalSpec named 'test', or pass eval_dir=estimator.eval_dir(name) of one that "
            "is made\n",
        ),
        ("test", ["test"], ""),
        (None, [""], ""),
    ],
)
def test_that_it_will_see_no_evaluation_is_said_before_training(estimator, caplog, given, eval_names, said):
    hook = psflow.stop_if_higher_hook(estimator, "falling", 9.0, estimator.eval_dir(given))
    spec = psflow.TrainSpec(examples, max_steps=2, hooks=[hook])
    evals = [psflow.EvalSpec(examples, name=name or None) for name in eval_names]
    Attempt(estimator, spec, evals)
    assert said.format(dir=estimator.model_dir) in caplog.text
    assert ("waits for evaluations" in caplog.text) is bool(said)


def test_evaluations_of_another_model_dir_may_be_watched(estimator, caplog, tmp_path):
    hook = psflow.stop_if_higher_hook(estimator, "falling", 9.0, f"{tmp_path}/other/eval")
    Attempt(estimator, psflow.TrainSpec(examples, max_steps=2, hooks=[hook]), None)
    assert caplog.text == ""


def test_an_element_of_a_metric_that_is_an_array_may_be_watched(estimator):
    hook = psflow.stop_if_higher_hook(estimator, "falling_0", 9.0)
    Attempt(estimator, psflow.TrainSpec(examples, max_steps=2, hooks=[hook]), psflow.EvalSpec(examples))


def test_a_metric_of_which_one_batch_shows_nothing_is_planned(tmp_path):
    class Ratio(Metric):
        def result(self):
            raise ZeroDivisionError

    def rare(features, labels, mode):
        spec = model_fn(features, labels, mode)
        return psflow.EstimatorSpec(mode, spec.predictions, spec.loss, spec.train_op, {"rare": Ratio()})

    config = psflow.RunConfig(tf_random_seed=1, save_checkpoints_steps=3)
    Attempt(psflow.Estimator(rare, str(tmp_path), config), psflow.TrainSpec(examples, 2), psflow.EvalSpec(examples))


@pytest.mark.parametrize("name", [None, "test"])
def test_a_metric_that_the_evaluation_will_not_have_is_refused_before_training(estimator, name):
    hook = psflow.stop_if_higher_hook(estimator, "faling", 9.0, estimator.eval_dir(name))
    spec = psflow.TrainSpec(examples, max_steps=2, hooks=[hook])
    which = "the evaluation 'test'" if name else "the evaluation"
    words = rf"the metric 'faling', but {which} has constant, falling, loss; did you mean 'falling'\?"
    with pytest.raises(UsageError, match=words):
        Attempt(estimator, spec, psflow.EvalSpec(examples, name=name))
