"""What is found out before anything starts."""

from __future__ import annotations

import pytest

from ps_runtime.errors import InputError, ModelFnError
from ps_runtime.estimator.planning import plan_job
from ps_runtime.model.caller import ModelCaller
from ps_runtime.model.scope import get_variable
from ps_runtime.model.spec import EstimatorSpec, ModeKeys
from ps_runtime.model.training import EvalSpec, TrainSpec
from ps_runtime.specs.input import InputSpec
from tests.ps_runtime.estimator.regression import batches, records, regression, shuffled


def plan(input_fn=records, eval_fn=None, model_fn=regression, num_replicas=1, check_labels=lambda labels, where: None):
    eval_spec = None if eval_fn is None else EvalSpec(eval_fn)
    return plan_job(ModelCaller(model_fn, {}, None), TrainSpec(input_fn), eval_spec, 1, num_replicas, check_labels)


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
    plan(records, records, check_labels=lambda labels, where: judged.append((len(labels), where)))
    assert judged == [(40, "the train input"), (40, "the eval input")]


@pytest.mark.parametrize(
    ("inputs", "mode"), [((lambda: iter(()), None), "train"), ((records, lambda: iter(())), "eval")]
)
def test_an_input_without_batches_is_refused(inputs, mode):
    with pytest.raises(InputError, match=f"the input_fn for {mode} gave no batch at all"):
        plan(*inputs)


def test_an_evaluation_with_other_variables_is_refused():
    def growing(features, labels, mode):
        spec = regression(features, labels, ModeKeys.TRAIN)
        if mode == ModeKeys.EVAL:
            get_variable("extra")
        return EstimatorSpec(mode, loss=spec.loss, train_op=spec.train_op)

    with pytest.raises(ModelFnError, match=r"growing creates variable 'extra' in eval but not in train"):
        plan(eval_fn=records, model_fn=growing)
