"""Labels (batch,) and (batch, 1) are the same to every head, and to other models in the shape of training."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from psflow import (
    BaselineClassifier,
    BaselineEstimator,
    BaselineRegressor,
    BinaryClassHead,
    Dataset,
    DNNClassifier,
    DNNLinearCombinedRegressor,
    DNNRegressor,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    FinalExporter,
    GradientDescent,
    LinearClassifier,
    LinearEstimator,
    LinearRegressor,
    MultiClassHead,
    RegressionHead,
    RunConfig,
    TrainSpec,
    get_variable,
    metrics,
    train_and_evaluate,
)

X = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
BINARY = np.arange(12) % 2
THREE = np.arange(12) % 3
NAMES = np.array(["a", "b", "c"])[THREE]
FLOATS = X.sum(axis=1)
CONFIG = RunConfig(tf_random_seed=1)
SHAPES = list(itertools.product([(12,), (12, 1)], repeat=2))

MODELS = {
    "baseline classifier": (lambda path: BaselineClassifier(model_dir=path, config=CONFIG), BINARY),
    "baseline regressor": (lambda path: BaselineRegressor(model_dir=path, config=CONFIG), FLOATS),
    "baseline head": (lambda path: BaselineEstimator(MultiClassHead(3), model_dir=path, config=CONFIG), THREE),
    "linear classifier": (lambda path: LinearClassifier(n_classes=3, model_dir=path, config=CONFIG), THREE),
    "linear regressor": (lambda path: LinearRegressor(model_dir=path, config=CONFIG), FLOATS),
    "linear head": (lambda path: LinearEstimator(BinaryClassHead(), model_dir=path, config=CONFIG), BINARY),
    "deep names": (
        lambda path: DNNClassifier([3], n_classes=3, label_vocabulary=list("abc"), model_dir=path, config=CONFIG),
        NAMES,
    ),
    "deep regressor": (lambda path: DNNRegressor([3], model_dir=path, config=CONFIG), FLOATS),
    "combined regressor": (
        lambda path: DNNLinearCombinedRegressor(dnn_hidden_units=[3], model_dir=path, config=CONFIG),
        FLOATS,
    ),
    "own model with a head": (lambda path: Estimator(with_head, path, CONFIG), FLOATS),
}


def with_head(features, labels, mode):
    w = get_variable("w", (2,))
    head = RegressionHead()
    return head.create_estimator_spec(
        features,
        mode,
        (features["x"] @ w)[:, np.newaxis],
        labels,
        lambda gradient: GradientDescent(0.1).apply_gradients({"w": (gradient * features["x"]).sum(axis=0)}),
    )


def in_memory(labels):
    return lambda: Dataset({"x": X}, labels).batch(4)


def by_number(labels):
    return lambda: Dataset({"x": X}, labels).by_number().batch(4)


def generated(labels):
    def batches():
        for start in range(0, 12, 4):
            yield {"x": X[start : start + 4]}, labels[start : start + 4]

    return batches


@pytest.mark.parametrize("name", MODELS)
def test_every_head_trains_and_evaluates_both_alike(name, tmp_path):
    make, labels = MODELS[name]
    found = []
    for input_of, (trained, evaluated) in itertools.product([in_memory, by_number, generated], SHAPES):
        model = make(str(tmp_path / str(len(found))))
        model.train(input_of(labels.reshape(trained)))
        found.append(model.evaluate(input_of(labels.reshape(evaluated))))
        assert len(list(model.predict(input_of(labels.reshape(evaluated))))) == 12
    assert len(found) == 12
    for result in found[1:]:
        assert result == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize(("trained", "evaluated"), SHAPES)
def test_so_do_a_job_with_an_exporter_and_a_job_that_continues(tmp_path, trained, evaluated):
    model = LinearRegressor(model_dir=str(tmp_path / "model"), config=CONFIG)
    for shape in (trained, evaluated):
        model.train(in_memory(FLOATS.reshape(shape)))
    train_spec = TrainSpec(lambda: in_memory(FLOATS.reshape(trained))().repeat(), max_steps=8)
    eval_spec = EvalSpec(in_memory(FLOATS.reshape(evaluated)), throttle_secs=0, exporters=FinalExporter("final"))
    train_and_evaluate(model, train_spec, eval_spec)
    assert model.evaluate(in_memory(FLOATS.reshape(evaluated)))["global_step"] == 8
    assert list((tmp_path / "model" / "export" / "final").iterdir())


def measured(features, labels, mode):
    w = get_variable("w", ())
    y = w * features["x"][:, 0]
    assert y.shape == np.shape(labels), "labels are broadcast"
    gradient = np.float32(np.mean((y - labels) * features["x"][:, 0]))
    return EstimatorSpec(
        mode,
        loss=np.mean((y - labels) ** 2),
        train_op=GradientDescent(0.1).apply_gradients({"w": gradient}),
        eval_metric_ops={"mse": metrics.mean_squared_error(labels, y)},
    )


@pytest.mark.parametrize("input_of", [in_memory, by_number, generated])
def test_a_model_without_a_head_is_evaluated_with_labels_as_it_was_trained(tmp_path, input_of):
    model = Estimator(measured, str(tmp_path), CONFIG)
    model.train(input_of(FLOATS))
    expected = model.evaluate(input_of(FLOATS))
    assert model.evaluate(input_of(FLOATS[:, np.newaxis])) == expected


def test_a_model_without_a_head_does_not_continue_with_labels_of_another_shape(tmp_path):
    model = Estimator(with_head, str(tmp_path), CONFIG)
    model.train(in_memory(FLOATS))
    with pytest.raises(ValueError, match=r"label '' is float32\[1\], expected float32\[\]"):
        model.train(in_memory(FLOATS[:, np.newaxis]))
