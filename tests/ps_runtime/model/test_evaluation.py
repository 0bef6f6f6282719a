"""Evaluating and predicting with given values."""

from __future__ import annotations

import numpy as np
import pytest

from psflow import metrics
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import schema_of
from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.scope import get_or_create_global_step, get_variable
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import OpenedEvaluation, batches_of, evaluate, input_digest, predict_batch
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.model.training import EvalSpec

X = np.arange(10, dtype=np.float32)
DATA = Dataset(X, 2 * X).batch(4)
VALUES = ModelValues({"w": np.array(3, np.float32)})
NOTHING = ModelValues({})


def model_fn(features, labels, mode):
    predicted = get_variable("w") * features
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=predicted)
    return EstimatorSpec(
        mode,
        loss=np.mean(np.abs(predicted - labels)) + get_or_create_global_step(),
        eval_metric_ops={"mae": metrics.mean_absolute_error(labels, predicted)},
    )


CALLER = ModelCaller(model_fn, {}, None)


def test_batches_come_in_the_order_of_the_records_once():
    batches = list(batches_of(DATA.repeat()))
    assert [len(features) for features, _ in batches] == [4, 4, 2]
    assert np.concatenate([features for features, _ in batches]).tolist() == X.tolist()


def test_a_metric_is_over_examples_and_the_loss_over_batches():
    found = evaluate(CALLER, DATA, VALUES, global_step=0, steps=None)
    assert found == {"mae": 4.5, "loss": pytest.approx((1.5 + 5.5 + 8.5) / 3), "global_step": 0}
    assert type(found["mae"]) is float


def test_reads_at_most_so_many_batches():
    found = evaluate(CALLER, DATA, VALUES, global_step=100, steps=2)
    assert found == {"mae": 3.5, "loss": pytest.approx(103.5), "global_step": 100}


def test_an_iterator_is_read_no_further_than_asked():
    opened = batches_of(DATA)
    evaluate(CALLER, opened, VALUES, 0, steps=2)
    assert len(list(opened)) == 1


def test_an_input_without_batches_is_refused():
    with pytest.raises(InputError, match="the input_fn for evaluation returned no batch"):
        evaluate(CALLER, iter(()), VALUES, 0, None)


def test_a_metric_may_not_change_its_kind():
    kinds = iter([metrics.mean([1.0]), metrics.recall([1], [1])])
    changing = ModelCaller(
        lambda features: EstimatorSpec(ModeKeys.EVAL, loss=0, eval_metric_ops={"m": next(kinds)}), {}, 0
    )
    with pytest.raises(ModelFnError, match="a Mean cannot be merged with a Ratio"):
        evaluate(changing, DATA, NOTHING, 0, None)


def test_later_batches_have_the_metrics_of_the_first():
    names = iter(["accuracy", "recall"])
    changing = ModelCaller(
        lambda features: EstimatorSpec(ModeKeys.EVAL, loss=0, eval_metric_ops={next(names): metrics.mean([1.0])}), {}, 0
    )
    with pytest.raises(ModelFnError, match="returned the metrics loss, recall, but accuracy, loss for the first batch"):
        evaluate(changing, DATA, NOTHING, 0, None)


def test_a_loss_of_several_numbers_is_refused():
    wrong = ModelCaller(lambda features: EstimatorSpec(ModeKeys.EVAL, loss=features), {}, None)
    with pytest.raises(ModelFnError, match=r"must be a scalar number, got float32\[4\]"):
        evaluate(wrong, DATA, NOTHING, 0, None)


def test_predictions_are_arrays_by_name():
    found = predict_batch(CALLER, X[:2], VALUES, 0)
    assert found["predictions"].tolist() == [0, 3]
    named = ModelCaller(lambda features: EstimatorSpec(ModeKeys.PREDICT, predictions={"y": [1, 2]}), {}, None)
    assert predict_batch(named, X[:2], NOTHING, 0)["y"].tolist() == [1, 2]


def test_another_input_has_another_digest():
    inputs = [(DATA, None), (DATA, 2), (Dataset(X, 2 * X).batch(5), None), (Dataset(X, 3 * X).batch(4), None)]
    digests = [input_digest(*given) for given in inputs]
    assert len({*digests}) == len(inputs)
    assert {len(digest) for digest in digests} == {32}
    assert input_digest(Dataset(X.copy(), 2 * X).batch(4), None) == digests[0]
    assert input_digest(batches_of(DATA), None) == ""


@pytest.mark.parametrize(("name", "said"), [(None, "evaluation 'eval'"), ("late", "evaluation 'late'")])
def test_an_input_that_does_not_fit_is_called_by_its_evaluation(name, said):
    spec = EvalSpec(lambda: Dataset({"z": X}, X).batch(4), name=name)
    opened = OpenedEvaluation(CALLER, spec, schema_of({"x": X}, X))
    with pytest.raises(InputError, match=f"the input of {said}"):
        opened.measure(VALUES, 0)
