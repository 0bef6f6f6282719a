"""Faults that a plan finds before anything starts."""

from __future__ import annotations

import inspect
import logging
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.reading_progress import watched_by
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, ModelFnError, UsageError
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.planning import plan_evaluations, plan_job
from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.export.exporters import BestExporter
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.specs.input import InputSpec
from tests.ps_runtime.estimator.regression import X, batches, records, regression, shuffled

NOTHING_KEPT = KeptInputs("nowhere")
NUMBER = {"x": ColumnOptions(type="float64")}


def any_labels(labels, where, input_schema):
    """Take all labels."""


def plan(input_fn=records, eval_fn=None, model_fn=regression, num_replicas=1, check_labels=any_labels, **spec):
    eval_specs = () if eval_fn is None else (EvalSpec(eval_fn, **spec),)
    return plan_job(
        ModelCaller(model_fn, {}, None), TrainSpec(input_fn), eval_specs, 1, num_replicas, check_labels, NOTHING_KEPT
    )


def test_shows_the_model_and_the_input():
    planned = plan(shuffled, eval_fn=batches)
    assert [(v.name, v.shape) for v in planned.model.variables] == [("w", (2,)), ("b", ())]
    assert planned.input == InputSpec(40, 4, None, 2)
    assert planned.datasets.keys() == {"train"}


def test_a_generator_is_a_stream():
    assert plan(batches).input.is_stream


@pytest.mark.parametrize(("num_replicas", "split_batches"), [(1, 2), (2, 1), (100, 1)])
def test_each_replica_gets_several_splits_of_an_epoch(num_replicas, split_batches):
    assert plan(num_replicas=num_replicas).input.split_batches == split_batches


def test_an_input_fn_hears_what_it_asks_for():
    heard = []

    def asking(input_context, mode, params):
        heard.append((input_context.num_input_pipelines, input_context.input_pipeline_id, mode, params))
        return records()

    plan(asking, num_replicas=3)
    assert heard == [(3, 0, ModeKeys.TRAIN, {})]


def test_the_labels_of_whole_data_sets_are_judged():
    judged = []
    plan(records, records, check_labels=lambda labels, where, schema: judged.append((len(labels), where)))
    assert judged == [(40, "the train input"), (40, "the eval input")]


@pytest.mark.parametrize(
    ("inputs", "mode"), [((lambda: iter(()), None), "train"), ((records, lambda: iter(())), "eval")]
)
def test_an_input_without_batches_is_refused(inputs, mode):
    with pytest.raises(InputError, match=f"the input_fn for {mode} returned no batch"):
        plan(*inputs)


def test_an_evaluation_with_other_variables_is_refused():
    def growing(features, labels, mode):
        spec = regression(features, labels, ModeKeys.TRAIN)
        if mode == ModeKeys.EVAL:
            get_variable("extra")
        return EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op)

    with pytest.raises(ModelFnError, match=r"growing creates variable 'extra' in eval but not in train$"):
        plan(eval_fn=records, model_fn=growing)


def test_an_evaluation_with_a_variable_of_another_shape_is_refused():
    def reshaping(features, labels, mode):
        get_variable("extra", (3,) if mode == ModeKeys.EVAL else (2,))
        return regression(features, labels, mode)

    words = r"reshaping creates variable 'extra' with shape \[3\] in eval, expected \[2\] as in train$"
    with pytest.raises(ModelFnError, match=words):
        plan(eval_fn=records, model_fn=reshaping)


# What the exporters compare


@pytest.mark.parametrize("metric", ["mae", "loss", "global_step"])
def test_an_exporter_may_compare_each_metric_of_an_evaluation(metric):
    plan(eval_fn=batches, exporters=BestExporter("best", compare_fn=better(metric, "min")))


def test_an_exporter_of_an_unknown_metric_is_refused_with_the_near_name():
    exporters = [BestExporter(), BestExporter("other", compare_fn=better("mea", "min"))]
    with pytest.raises(UsageError, match=r"has loss, mae, but no metric 'mea'; did you mean 'mae'\?"):
        plan(eval_fn=records, exporters=exporters)


def test_a_compare_fn_that_fails_is_refused_with_its_line_and_the_metrics():
    def larger(best_eval_result, current_eval_result):
        return current_eval_result["auc"] > best_eval_result["auc"]

    words = r"larger raised KeyError over the metrics global_step, loss, mae at .*test_planning\.py:\d+: 'auc'"
    with pytest.raises(UsageError, match=words):
        plan(eval_fn=records, exporters=BestExporter("best", compare_fn=larger))


# What is called only later


def predicting(**wrong):
    def model_fn(features, labels, mode):
        spec = regression(features, labels, mode)
        if mode != ModeKeys.PREDICT:
            return spec
        if wrong.get("fails"):
            raise KeyError("no such feature")
        if "variable" in wrong:
            get_variable(wrong["variable"])
        return EstimatorSpec(mode, predictions=wrong.get("predictions", spec.predictions))

    return model_fn


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"fails": True}, r"model_fn raised KeyError in infer mode at .*test_planning\.py:\d+: 'no such feature'"),
        ({"variable": "extra"}, "model_fn creates variable 'extra' in infer but not in train$"),
        (
            {"predictions": {"y": 0.5}},
            r"model_fn predicts 'y' of shape \[\] for 3 examples in infer mode: expected one",
        ),
        ({"predictions": np.zeros(7)}, r"model_fn predicts 'predictions' of shape \[7\] for 3 examples"),
        ({"predictions": {}}, "model_fn predicts nothing in infer mode"),
    ],
)
def test_what_would_fail_at_the_first_export_is_refused(wrong, words):
    with pytest.raises(ModelFnError, match=words):
        plan(eval_fn=records, model_fn=predicting(**wrong), exporters=BestExporter())
    caller, model = ModelCaller(predicting(**wrong), {}, None), plan().model
    with pytest.raises(ModelFnError, match=words.replace("in train", "in the checkpoint")):
        plan_evaluations(caller, (EvalSpec(records, exporters=BestExporter()),), model, any_labels, NOTHING_KEPT)


def test_a_model_that_is_not_exported_need_not_predict():
    assert plan(eval_fn=records, model_fn=predicting(fails=True)).model == plan().model


def test_the_first_batch_of_each_stream_is_read_once():
    read = []

    def once(name):
        for batch in batches():
            read.append(name)
            yield batch

    plan(lambda: once("train"), eval_fn=lambda: once("eval"), exporters=BestExporter())
    assert read == ["train", "eval"]


# Cells that are missing, NaN or infinite


def holed(row):
    def input_fn():
        data = records()
        return replace(data, features=data.features | {"x": np.where(data.features["row"][:, None] == row, np.nan, X)})

    return input_fn


def test_the_cells_of_every_input_are_told_together():
    with pytest.raises(InputError) as caught:
        plan(holed(7), eval_fn=holed(9))
    first, second = caught.value.faults
    assert "features['x'] has 2 cells that are missing, NaN or infinite, the first in row 7" in first
    assert "the first in row 9" in second


def test_an_input_fn_whose_cells_are_refused_is_called_once():
    calls = []

    def counted():
        calls.append(1)
        return holed(7)()

    with pytest.raises(InputError, match="the first in row 7"):
        plan(counted)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1,a", ",b", "3,a"], r"train\.csv: column 'x' has 1 cell that is missing, .* row 3"),
        (["1,a", "2,b", "3,"], r"train\.csv: column 'y' has 1 cell that is missing, .* row 4"),
    ],
)
def test_record_files_that_are_refused_are_scanned_once_with_those_of_evaluations(tmp_path, cells, words):
    for name, lines in {"train": cells, "eval": ["4,a", ",a"]}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    scanned = []
    inputs = [Csv(str(tmp_path / f"{name}.csv"), label="y", columns=NUMBER).read for name in ("train", "eval")]
    with watched_by(lambda told: scanned.append(told.where)), pytest.raises(InputError, match=words) as caught:
        plan(*inputs)
    assert scanned == ["the train input", "the eval input"]
    assert re.search(r"eval\.csv: column 'x' has 1 cell that is missing, .* row 3", caught.value.faults[1])


def test_an_input_is_planned_without_the_rows_that_are_left_out():
    spec = TrainSpec(holed(7), non_finite="drop")
    planned = plan_job(ModelCaller(regression, {}, None), spec, (), 1, 1, any_labels, NOTHING_KEPT)
    assert (planned.input.num_records, planned.datasets["train"].non_finite.num_rows) == (39, 1)


# What the functions of the user raise


def _failing_model(features, labels, mode):
    if mode == ModeKeys.EVAL:
        len(3)  # here
    return regression(features, labels, mode)


def _failing_input(late=False):
    if late:
        return (batch["x"] for batch in [None])  # here
    raise RuntimeError("no such table")


def line_of(function, words):
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if words in line)


def test_what_a_model_fn_raises_is_told_with_mode_and_line():
    line = line_of(_failing_model, "# here")
    words = rf"_failing_model raised TypeError in eval mode at .*test_planning\.py:{line}: object of type 'int' has no"
    with pytest.raises(ModelFnError, match=words) as caught:
        plan(eval_fn=records, model_fn=_failing_model)
    assert type(caught.value.__cause__) is TypeError


def test_an_error_below_a_model_fn_is_told_with_the_line_of_the_model_fn():
    def model_fn(features, labels, mode):
        return regression({"x": features["x"].T}, labels, mode)

    line = line_of(model_fn, "return")
    with pytest.raises(ModelFnError, match=rf"model_fn raised ValueError in train mode .*test_planning\.py:{line}: "):
        plan(model_fn=model_fn)


@pytest.mark.parametrize(
    ("input_fn", "mode", "error"),
    [
        (_failing_input, "train", "RuntimeError"),
        (partial(_failing_input, late=True), "train", "TypeError"),
        (_failing_input, "eval", "RuntimeError"),
    ],
)
def test_what_an_input_fn_raises_is_told_with_mode_and_line(input_fn, mode, error):
    line = line_of(_failing_input, "# here" if error == "TypeError" else "raise")
    inputs = (input_fn, None) if mode == "train" else (records, input_fn)
    words = rf"test_planning:_failing_input raised {error} in {mode} mode at .*test_planning\.py:{line}: "
    with pytest.raises(InputError, match=words):
        plan(*inputs)


def empty(input_context=None):
    return iter(())


def of_worker_1(input_context):
    return batches() if input_context.input_pipeline_id == 2 else iter(())


def plan_of_parts(input_fn, eval_specs=(), model_fn=regression, num_replicas=3):
    spec = TrainSpec(input_fn, each_worker_reads_all=True)
    return plan_job(ModelCaller(model_fn, {}, None), spec, eval_specs, 1, num_replicas, any_labels, NOTHING_KEPT)


@pytest.mark.parametrize(
    ("input_fn", "eval_specs", "source"),
    [(of_worker_1, (), "the train input of worker-1"), (lambda: iter(()), (EvalSpec(records),), "the eval input")],
)
def test_where_the_part_of_the_chief_is_empty_another_batch_shows_the_model(input_fn, eval_specs, source, caplog):
    caplog.set_level(logging.INFO)
    found, whole = plan_of_parts(input_fn, eval_specs), plan_of_parts(batches)
    assert (found.model, found.input) == (whole.model, whole.input)
    np.testing.assert_array_equal(found.substitute_batch[0]["row"], next(batches())[0]["row"])
    assert whole.substitute_batch is None
    assert caplog.messages == [f"the part of the chief of the train input is empty: the job is planned from {source}"]


@pytest.mark.parametrize(
    ("input_fn", "num_replicas", "eval_specs", "words"),
    [
        (empty, 3, (), r"for train returned no batch in any of its 3 input pipelines$"),
        (empty, 1, (EvalSpec(records),), r"for train returned no batch$"),
        (empty, 3, (EvalSpec(empty),), r"for eval returned no batch$"),
        (
            lambda: iter(()),
            3,
            (),
            r"for train returned no batch for the chief, .*; let the input_fn take input_context,",
        ),
    ],
)
def test_a_job_is_refused_if_no_batch_shows_its_model(input_fn, num_replicas, eval_specs, words):
    with pytest.raises(InputError, match=words):
        plan_of_parts(input_fn, eval_specs, num_replicas=num_replicas)


def test_an_error_of_the_model_names_the_input_of_the_batch():
    def failing(features, labels, mode):
        raise KeyError("weight")

    with pytest.raises(ModelFnError, match=r"failing raised KeyError in train mode with batch 0 of the eval input at "):
        plan_of_parts(lambda: iter(()), (EvalSpec(records),), failing)


def ragged():
    for length in (3, 5):
        yield {"ids": np.zeros((2, length), np.int64)}, np.zeros(2)


def summed(features, labels, mode):
    get_variable("w", ())
    total = float(np.sum(features["ids"]))
    return EstimatorSpec(mode, loss=total, train_op=GradientDescent(0.1).apply_gradients({"w": np.float32(0)}))


def test_batches_that_are_each_padded_to_their_own_length_are_refused(tmp_path):
    advice = "rows of shape [5], expected [3]; if rows have different lengths, pad those of every batch to one"
    with pytest.raises(InputError, match=re.escape(f"batch 1 of the train input: feature 'ids' has {advice}")):
        Estimator(summed, str(tmp_path)).train(ragged)
