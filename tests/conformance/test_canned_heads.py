"""Heads of canned Estimators: class names, weights, reductions, thresholds, multi-label classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import (
    BaselineClassifier,
    BaselineEstimator,
    BaselineRegressor,
    BinaryClassHead,
    Dataset,
    DNNClassifier,
    DNNEstimator,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedEstimator,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    LinearClassifier,
    LinearEstimator,
    LinearRegressor,
    ModeKeys,
    MultiClassHead,
    MultiLabelHead,
    RegressionHead,
    RunConfig,
    get_variable,
)
from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.estimator import saved_model
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.export.serving_input import served_features

InputFn = Callable[[], Dataset]
CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=1000, log_step_count_steps=None)
RANDOM = np.random.default_rng(4)
X = RANDOM.normal(size=24).astype(np.float32)
WEIGHTS = RANDOM.integers(0, 3, 24).astype(np.float32)
BINARY = (X > 0).astype(np.int64)
THREE = np.digitize(X, [-0.4, 0.4])
LABELS = np.stack([X > 0, X > 0.5, X < 0.2], axis=1).astype(np.int64)
WORDS = np.array(["low", "mid", "top"])


def rows(labels: Any, **features: Any) -> InputFn:
    """Return an input_fn of four batches."""
    return lambda: Dataset({"x": X, **features}, labels).batch(6)


def unlabelled() -> Dataset:
    return Dataset({"x": X}).batch(6)


def trained(kind: Any, directory: Path, input_fn: InputFn, *arguments: Any, **settings: Any) -> Estimator:
    estimator: Estimator = kind(*arguments, model_dir=str(directory), config=CONFIG, **settings)
    return estimator.train(input_fn)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(LinearClassifier, ()), (DNNClassifier, ([3],)), (DNNLinearCombinedClassifier, ([3],)), (BaselineClassifier, ())],
)
def test_two_classes_have_one_logit(kind: Any, arguments: Any, tmp_path: Path) -> None:
    estimator = trained(kind, tmp_path, rows(BINARY), *arguments)
    widths = {
        name: estimator.get_variable_value(name).shape[-1]
        for name in estimator.get_variable_names()
        if name.endswith(("logits/kernel", "bias_weights", "baseline/bias"))
    }
    assert set(widths.values()) == {1}
    [batch, *_] = estimator.predict(unlabelled, yield_single_examples=False)
    assert {name: values.shape for name, values in batch.items()} == {
        "logits": (6, 1),
        "logistic": (6, 1),
        "probabilities": (6, 2),
        "class_ids": (6, 1),
        "classes": (6, 1),
        "all_class_ids": (6, 2),
        "all_classes": (6, 2),
    }


def test_three_classes_have_a_logit_each(tmp_path: Path) -> None:
    estimator = trained(LinearClassifier, tmp_path, rows(THREE), n_classes=3)
    example = next(iter(estimator.predict(unlabelled)))
    assert {name: values.shape for name, values in example.items()} == {
        "logits": (3,),
        "probabilities": (3,),
        "class_ids": (1,),
        "classes": (1,),
        "all_class_ids": (3,),
        "all_classes": (3,),
    }
    assert example["class_ids"].dtype == np.int64
    assert example["classes"].tolist() == [str(example["class_ids"][0])]
    assert example["all_classes"].tolist() == ["0", "1", "2"]


@pytest.mark.parametrize(("n_classes", "class_ids"), [(2, BINARY), (3, THREE)])
@pytest.mark.parametrize("given", [True, False], ids=["n_classes", "counted"])
def test_words_in_arrays_are_labels(n_classes: int, class_ids: Any, given: bool, tmp_path: Path) -> None:
    words = WORDS[:n_classes].tolist()
    asked = {"n_classes": n_classes} if given else {}
    of_words = trained(LinearClassifier, tmp_path / "w", rows(WORDS[class_ids]), label_vocabulary=words, **asked)
    of_ids = trained(LinearClassifier, tmp_path / "i", rows(class_ids), n_classes=n_classes)
    results = of_words.evaluate(rows(WORDS[class_ids]))
    assert results == of_ids.evaluate(rows(class_ids))
    predictions = list(of_words.predict(unlabelled))
    assert [each["classes"][0] for each in predictions] == [words[each["class_ids"][0]] for each in predictions]


def test_a_word_that_is_no_class_is_refused_before_training(tmp_path: Path) -> None:
    labels = WORDS[BINARY].tolist()
    labels[7] = "mdi"
    with pytest.raises(InputError, match="label of row 7 of the train input is 'mdi', expected one of 'low', 'mid'"):
        trained(LinearClassifier, tmp_path, rows(labels), label_vocabulary=["low", "mid"])


def test_words_without_a_vocabulary_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected integer labels, got <U3 .* give their names as label_vocabulary"):
        trained(LinearClassifier, tmp_path, rows(WORDS[BINARY]))


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS[:, np.newaxis], WEIGHTS.astype(np.int64)])
def test_a_weight_column_is_no_feature_and_weighs_losses_and_metrics(weights: Any, tmp_path: Path) -> None:
    estimator = trained(LinearRegressor, tmp_path, rows(X, w=weights), weight_column="w")
    names = estimator.get_variable_names()
    assert names == ["global_step", "linear/linear_model/bias_weights", "linear/linear_model/x/weights"]
    results = estimator.evaluate(rows(X, w=weights))
    predicted = np.array([each["predictions"][0] for each in estimator.predict(unlabelled)])
    assert results["average_loss"] == pytest.approx(np.average((predicted - X) ** 2, weights=WEIGHTS), rel=1e-5)
    assert results["loss"] == pytest.approx(np.mean((predicted - X) ** 2 * WEIGHTS), rel=1e-5)
    assert results["label/mean"] == pytest.approx(np.average(X, weights=WEIGHTS), rel=1e-5)


def test_examples_of_weight_0_are_not_learned(tmp_path: Path) -> None:
    of_some = np.where(BINARY == 1, 1, 0)
    estimator = trained(
        BaselineRegressor,
        tmp_path,
        rows(np.where(of_some, 5.0, -99.0), w=of_some),
        1,
        GradientDescent(0.5),
        weight_column="w",
    )
    assert 0 < estimator.get_variable_value("baseline/bias")[0] < 5


@pytest.mark.parametrize(
    ("features", "weight_column", "words"),
    [
        ({"w": WEIGHTS}, "ww", "weight_column is 'ww', but the features of the train input are 'x', 'w'; did you mean"),
        ({"w": np.ones((24, 2))}, "w", r"weight_column 'w' of the train input is float64\[2\], expected one number"),
    ],
)
def test_a_weight_column_is_a_feature_of_one_number(
    features: Any, weight_column: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=words):
        trained(LinearClassifier, tmp_path, rows(BINARY, **features), weight_column=weight_column)


def test_an_evaluation_needs_the_weights_and_a_prediction_does_not(tmp_path: Path) -> None:
    estimator = trained(LinearClassifier, tmp_path, rows(BINARY, w=WEIGHTS), weight_column="w")
    with pytest.raises(InputError, match="the eval input has no feature 'w'"):
        estimator.evaluate(rows(BINARY))
    without = [each["logits"][0] for each in estimator.predict(unlabelled)]
    assert without == [each["logits"][0] for each in estimator.predict(rows(None, w=WEIGHTS))]


def test_clients_of_an_export_send_no_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bundles: list[Any] = []

    class Writer:
        def write(self, directory: str, bundle: Any) -> None:
            Path(directory).mkdir()
            bundles.append(bundle)

    monkeypatch.setattr(saved_model, "installed_writer", Writer)
    estimator = trained(LinearClassifier, tmp_path / "model", rows(BINARY, w=WEIGHTS), weight_column="w")
    estimator.export_saved_model(str(tmp_path / "exports"))
    [bundle] = bundles
    assert list(bundle.features) == ["x"]
    assert bundle.schema.names == ("x",)
    assert bundle.signatures == ("serving_default", "predict", "classification", "regression")
    assert served_features({"x": X}, bundle.schema, "the input")["x"] is not None


def test_a_negative_weight_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"weights 'w': row 0 of the batch is -1.0, expected a finite number >= 0"):
        trained(LinearClassifier, tmp_path, rows(BINARY, w=-np.ones(24)), weight_column="w")


@pytest.mark.parametrize(
    ("reduction", "divisors"),
    [
        (Reduction.SUM, [1, 1, 1, 1]),
        (Reduction.SUM_OVER_BATCH_SIZE, [6, 6, 6, 6]),
        (Reduction.MEAN, WEIGHTS.reshape(4, 6).sum(axis=1)),
        ("sum_by_nonzero_weights", np.count_nonzero(WEIGHTS.reshape(4, 6), axis=1)),
    ],
)
def test_a_reduction_says_the_divisor_of_the_loss(reduction: Any, divisors: Any, tmp_path: Path) -> None:
    estimator = trained(
        LinearClassifier, tmp_path, rows(BINARY, w=WEIGHTS), weight_column="w", loss_reduction=reduction
    )
    results = estimator.evaluate(rows(BINARY, w=WEIGHTS))
    positive = np.array([each["logistic"][0] for each in estimator.predict(unlabelled)], np.float64)
    losses = -np.log(np.where(BINARY == 1, positive, 1 - positive)) * WEIGHTS
    assert results["loss"] == pytest.approx(np.mean(losses.reshape(4, 6).sum(axis=1) / divisors), rel=1e-4)
    assert results["average_loss"] == pytest.approx(losses.sum() / WEIGHTS.sum(), rel=1e-4)


@pytest.mark.parametrize("reduction", ["none", "SUM", 3, None])
def test_another_reduction_is_refused(reduction: Any) -> None:
    with pytest.raises(ValueError, match=r"LinearRegressor: loss_reduction is .*, expected one of sum, sum_over_batch"):
        LinearRegressor(loss_reduction=reduction)


def test_all_faults_of_a_classifier_come_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        DNNClassifier([0], n_classes=1, weight_column=3, label_vocabulary="ab", loss_reduction="mode")  # type: ignore[arg-type]
    assert len(caught.value.faults) == 5


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(LinearEstimator, ()), (DNNEstimator, ([3],)), (DNNLinearCombinedEstimator, ([3],)), (BaselineEstimator, ())],
)
def test_a_head_is_given_to_an_estimator(kind: Any, arguments: Any, tmp_path: Path) -> None:
    head = MultiLabelHead(3, thresholds=[0.5], classes_for_class_based_metrics=[1])
    estimator = trained(kind, tmp_path, rows(LABELS), head, *arguments)
    assert set(estimator.evaluate(rows(LABELS))) == {
        "auc",
        "auc_precision_recall",
        "average_loss",
        "accuracy/positive_threshold_0.5",
        "precision/positive_threshold_0.5",
        "recall/positive_threshold_0.5",
        "probability_mean/class1",
        "auc/class1",
        "auc_precision_recall/class1",
        "loss",
        "global_step",
    }
    example = next(iter(estimator.predict(unlabelled)))
    assert {name: values.shape for name, values in example.items()} == {
        "logits": (3,),
        "probabilities": (3,),
        "classes": (3,),
    }


@pytest.mark.parametrize(
    ("head", "labels", "same"),
    [
        (BinaryClassHead(), BINARY, lambda path: LinearClassifier(None, 2, None, path, CONFIG)),
        (MultiClassHead(3), THREE, lambda path: LinearClassifier(None, 3, None, path, CONFIG)),
        (RegressionHead(), X, lambda path: LinearRegressor(None, 1, None, path, CONFIG)),
        (
            MultiClassHead(3, label_vocabulary=WORDS.tolist()),
            WORDS[THREE],
            lambda path: LinearClassifier(None, 3, None, path, CONFIG, label_vocabulary=WORDS.tolist()),
        ),
    ],
)
def test_an_estimator_with_a_head_is_the_model_of_that_name(head: Any, labels: Any, same: Any, tmp_path: Path) -> None:
    estimator = trained(LinearEstimator, tmp_path / "head", rows(labels), head)
    other = same(str(tmp_path / "other")).train(rows(labels))
    assert estimator.evaluate(rows(labels)) == other.evaluate(rows(labels))


def test_labels_of_many_classes_may_be_words(tmp_path: Path) -> None:
    words = np.array([[word if has else "" for word, has in zip(WORDS, row, strict=True)] for row in LABELS.tolist()])
    estimator = trained(
        LinearEstimator, tmp_path / "words", rows(words), MultiLabelHead(3, label_vocabulary=WORDS.tolist())
    )
    of_ids = trained(LinearEstimator, tmp_path / "ids", rows(LABELS), MultiLabelHead(3))
    assert estimator.evaluate(rows(words)) == of_ids.evaluate(rows(LABELS))
    assert next(iter(estimator.predict(unlabelled)))["classes"].tolist() == WORDS.tolist()


def test_labels_of_many_classes_are_checked_before_training(tmp_path: Path) -> None:
    labels = LABELS.copy()
    labels[5, 2] = 2
    with pytest.raises(InputError, match="label of row 5 of the train input has 2 for class 2, expected 0 or 1"):
        trained(LinearEstimator, tmp_path, rows(labels), MultiLabelHead(3))


def test_the_name_of_a_head_ends_its_metrics(tmp_path: Path) -> None:
    estimator = trained(LinearEstimator, tmp_path, rows(X), RegressionHead(name="price"))
    assert set(estimator.evaluate(rows(X))) == {
        "average_loss/price",
        "label/mean/price",
        "prediction/mean/price",
        "loss",
        "global_step",
    }


@pytest.mark.parametrize("head", [None, "MultiLabelHead", MultiLabelHead])
def test_what_is_no_head_is_refused(head: Any) -> None:
    with pytest.raises(ValueError, match=r"LinearEstimator: head is .*, expected a Head such as MultiLabelHead"):
        LinearEstimator(head)


def test_a_model_fn_of_ones_own_may_have_a_head(tmp_path: Path) -> None:
    head = BinaryClassHead(weight_column="w", thresholds=[0.3])

    def model_fn(features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
        column = features["x"][:, np.newaxis]
        logits = column * get_variable("slope", initializer=0.0)

        def train(gradient: Any) -> Any:
            return GradientDescent(1.0).apply_gradients({"slope": np.vdot(column, gradient)})

        return head.create_estimator_spec(features, mode, logits, labels, train)

    estimator = Estimator(model_fn, str(tmp_path), CONFIG).train(rows(BINARY, w=WEIGHTS))
    assert estimator.get_variable_value("slope") > 0
    assert "recall/positive_threshold_0.3" in estimator.evaluate(rows(BINARY, w=WEIGHTS))
