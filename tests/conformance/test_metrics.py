"""Metrics: how they are called, what they refuse, and that batches merge."""

import functools
import inspect
import json
import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from psflow import metrics
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.evaluation import as_numbers

FUNCTIONS = {name: getattr(metrics, name) for name in metrics.__all__ if name[0].islower()}
NUMBERS = json.loads((Path(__file__).parents[1] / "parity" / "metrics.json").read_text())
EXAMPLES = {case["metric"]: case for case in NUMBERS if not case["batches"][0].keys() & {"weights"}}
NAN, INF = math.nan, math.inf

# the arguments before `weights` of those that programs call with positions, as in tf.compat.v1.metrics
ORDER = {
    "accuracy": ["labels", "predictions"],
    "auc": ["labels", "predictions"],
    "average_precision_at_k": ["labels", "predictions", "k"],
    "false_negatives": ["labels", "predictions"],
    "false_negatives_at_thresholds": ["labels", "predictions", "thresholds"],
    "false_positives": ["labels", "predictions"],
    "false_positives_at_thresholds": ["labels", "predictions", "thresholds"],
    "mean": ["values"],
    "mean_absolute_error": ["labels", "predictions"],
    "mean_cosine_distance": ["labels", "predictions", "dim"],
    "mean_iou": ["labels", "predictions", "num_classes"],
    "mean_per_class_accuracy": ["labels", "predictions", "num_classes"],
    "mean_relative_error": ["labels", "predictions", "normalizer"],
    "mean_squared_error": ["labels", "predictions"],
    "mean_tensor": ["values"],
    "percentage_below": ["values", "threshold"],
    "precision": ["labels", "predictions"],
    "precision_at_k": ["labels", "predictions", "k", "class_id"],
    "precision_at_thresholds": ["labels", "predictions", "thresholds"],
    "precision_at_top_k": ["labels", "predictions_idx", "k", "class_id"],
    "recall": ["labels", "predictions"],
    "recall_at_k": ["labels", "predictions", "k", "class_id"],
    "recall_at_thresholds": ["labels", "predictions", "thresholds"],
    "recall_at_top_k": ["labels", "predictions_idx", "k", "class_id"],
    "root_mean_squared_error": ["labels", "predictions"],
    "sensitivity_at_specificity": ["labels", "predictions", "specificity"],
    "sparse_average_precision_at_k": ["labels", "predictions", "k"],
    "sparse_precision_at_k": ["labels", "predictions", "k", "class_id"],
    "specificity_at_sensitivity": ["labels", "predictions", "sensitivity"],
    "true_negatives": ["labels", "predictions"],
    "true_negatives_at_thresholds": ["labels", "predictions", "thresholds"],
    "true_positives": ["labels", "predictions"],
    "true_positives_at_thresholds": ["labels", "predictions", "thresholds"],
}


def measured(case, batches):
    measure = functools.partial(FUNCTIONS[case["metric"]], **case["options"])
    return [measure(**{name: np.array(value) for name, value in batch.items()}) for batch in batches]


@pytest.mark.parametrize("name", ORDER)
def test_a_program_that_gives_arguments_by_position_means_the_same_ones(name):
    parameters = list(inspect.signature(FUNCTIONS[name]).parameters)
    assert parameters[: len(ORDER[name]) + 1] == [*ORDER[name], "weights"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_name_is_taken_and_means_nothing(name):
    parameter = inspect.signature(FUNCTIONS[name]).parameters["name"]
    assert (parameter.kind, parameter.default) == (inspect.Parameter.KEYWORD_ONLY, None)


@pytest.mark.parametrize("name", EXAMPLES)
def test_batches_merge_in_any_order(name):
    a, b, c = measured(EXAMPLES[name], EXAMPLES[name]["batches"])
    expected = a.merge(b).merge(c).result()
    for merged in (a.merge(b.merge(c)), c.merge(a).merge(b), pickle.loads(pickle.dumps(b)).merge(c).merge(a)):
        np.testing.assert_allclose(merged.result(), expected, rtol=1e-12)


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - {"mean_tensor"}))  # whose batches all have one shape
def test_an_empty_batch_changes_nothing(name):
    case = EXAMPLES[name]
    empty_batch = {key: np.array(value)[:0] for key, value in case["batches"][0].items()}
    empty, one = measured(case, [empty_batch, case["batches"][0]])
    np.testing.assert_allclose(one.merge(empty).result(), one.result())
    is_count = name == "sum" or name.partition("_at_")[0] in (
        "true_positives",
        "true_negatives",
        "false_positives",
        "false_negatives",
    )
    assert np.all(np.equal(empty.result(), 0.0) if is_count else np.isnan(empty.result()))


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_size_does_not_grow_with_batches(name):
    case = EXAMPLES[name]
    one, *others = measured(case, case["batches"] * 5)
    merged = functools.reduce(lambda a, b: a.merge(b), others, one)
    assert len(pickle.dumps(merged)) <= len(pickle.dumps(one)) + 40


WRONG_SHAPES = [name for name, case in EXAMPLES.items() if case["batches"][0].keys() >= {"labels", "predictions"}]


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_labels_and_predictions_that_do_not_fit_are_refused(name):
    case = EXAMPLES[name]
    batch = {key: np.array(value) for key, value in case["batches"][0].items()}
    with pytest.raises(ModelFnError, match=rf"{name.removeprefix('sparse_').split('_at')[0]}.*: expected .* got "):
        FUNCTIONS[name](**(batch | {"labels": batch["labels"][:-1]}), **case["options"])


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (-1.0, "is -1.0, expected a finite number of 0 or more"),
        (NAN, "is nan, expected a finite number of 0 or more"),
        (INF, "is inf, expected a finite number of 0 or more"),
        ("heavy", "expected numbers as weights, got"),
    ],
)
def test_weights_that_are_none_are_refused(name, weight, words):
    case = EXAMPLES[name]
    batch = {key: np.array(value) for key, value in case["batches"][0].items()}
    with pytest.raises(ModelFnError, match=words):
        FUNCTIONS[name](**batch, weights=weight, **case["options"])


@pytest.mark.parametrize("shape", [(3, 2), (3, 1, 1), (2,), (3, 3, 3)])
def test_weights_have_the_axes_of_the_values_or_fewer(shape):
    words = rf"expected weights of shape \(3,\), of its axes some 1, or one number; got {re.escape(str(shape))}"
    with pytest.raises(ModelFnError, match=words):
        metrics.mean([1.0, 2.0, 3.0], np.ones(shape))


@pytest.mark.parametrize("label", [3, 4, 99, -2])
def test_a_label_that_is_no_class_of_a_row_is_named(label):
    words = rf"labels\[1, 0\] is {label}, expected an integer in \[0, 3\), or -1 for no label"
    with pytest.raises(ModelFnError, match=words):
        metrics.recall_at_k([[0], [label]], np.eye(3)[:2], 1)


def test_huge_logits_overflow_nowhere():
    logits = [[1000.0, 0.0], [0.0, -1000.0]]
    with np.errstate(all="raise", under="ignore"):
        sparse = metrics.sparse_categorical_crossentropy([0, 1], logits, from_logits=True).result()
        dense = metrics.categorical_crossentropy([[1, 0], [0, 1]], logits, from_logits=True).result()
    assert sparse == dense == 500.0


@pytest.mark.parametrize("name", EXAMPLES)
def test_weights_of_another_number_of_rows_are_refused(name):
    case = EXAMPLES[name]
    batch = {key: np.array(value) for key, value in case["batches"][0].items()}
    with pytest.raises(ModelFnError, match=r"expected weights of shape \(.*\), of its axes some 1, or one number; got"):
        FUNCTIONS[name](**batch, weights=np.ones(9), **case["options"])


SQUARE = np.arange(9.0).reshape(3, 3)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (None, 4.0),
        (2.0, 4.0),
        ([1.0, 0.0, 0.0], 1.0),  # of rows, though a column would fit as well
        ([[1.0], [0.0], [0.0]], 1.0),
        ([[1.0, 0.0, 0.0]], 3.0),
        (np.eye(3), 4.0),
        (np.eye(3)[:, :, np.newaxis], 4.0),
        (np.zeros((3, 3)), NAN),
    ],
)
def test_weights_belong_to_rows_first(weights, expected):
    np.testing.assert_equal(metrics.mean(SQUARE, weights).result(), expected)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.mean_iou([0, 3], [0, 0], 3), r"mean_iou: labels\[1\] is 3, expected an integer in \[0, 3\)"),
        (lambda: metrics.mean_iou([0, 2], [0, -1], 3), r"mean_iou: predictions\[1\] is -1, expected an integer in"),
        (lambda: metrics.mean_iou([0, NAN], [0, 0], 3), r"mean_iou: labels\[1\] is nan, expected an integer"),
        (lambda: metrics.mean_iou([0, 0.5], [0, 0], 3), r"mean_iou: labels\[1\] is 0.5, expected an integer"),
        (lambda: metrics.mean_iou(["a"], ["a"], 3), "mean_iou: expected integers as labels, got <U1"),
        (lambda: metrics.mean_iou([0], [0], 0), "mean_iou: num_classes is 0, expected 1 or more"),
        (lambda: metrics.iou([0], [0], 2, [2]), r"iou: target_class_ids are \[2\], expected some of \[0, 2\)"),
        (lambda: metrics.iou([0], [0], 2, []), r"iou: target_class_ids are \[\], expected some of"),
        (lambda: metrics.binary_iou([0], [NAN]), "binary_iou: a prediction or the threshold is nan"),
        (lambda: metrics.one_hot_mean_iou(np.eye(3), np.eye(3), 4), r"expected arrays \(..., 4\), got shape \(3, 3\)"),
        (lambda: metrics.mean_per_class_accuracy([5], [0], 5), r"mean_per_class_accuracy: labels\[0\] is 5"),
        (lambda: metrics.precision([NAN], [1]), r"precision: labels\[0\] is nan, expected 0 for false"),
        (lambda: metrics.recall([1, 1], [1, NAN]), r"recall: predictions\[1\] is nan"),
        (lambda: metrics.true_positives([NAN], [1]), r"true_positives: labels\[0\] is nan"),
        (lambda: metrics.auc([0], [1.5]), r"auc: expected probabilities in \[0, 1\], got 1.5"),
        (lambda: metrics.auc([NAN], [0.5]), r"auc: labels\[0\] is nan"),
        (lambda: metrics.auc([0], [0.5], num_thresholds=1), "auc: num_thresholds is 1, expected 2 or more"),
        (lambda: metrics.auc([0], [0.5], thresholds=[2.0]), r"auc: thresholds are \[2.0\], expected numbers in \[0, 1"),
        (lambda: metrics.auc([0], [0.5], thresholds=[]), r"auc: thresholds are \[\], expected one number or more"),
        (lambda: metrics.auc([0], [0.5], curve="RO"), "auc: curve is 'RO', expected 'ROC' or 'PR'; did you mean 'ROC'"),
        (lambda: metrics.auc([0], [0.5], summation_method="majorin"), "auc: summation_method is 'majorin'.*'majoring'"),
        (lambda: metrics.recall_at_thresholds([0], [0.5], [NAN]), r"recall_at_thresholds: thresholds are \[nan\]"),
        (lambda: metrics.true_positives_at_thresholds([0], [2], [0.5]), "true_positives_at_thresholds: expected prob"),
        (lambda: metrics.sensitivity_at_specificity([0], [0.5], 1.5), r"specificity is 1.5, expected a number in \[0"),
        (lambda: metrics.specificity_at_sensitivity([0], [0.5], -1), r"sensitivity is -1, expected a number in \[0"),
        (lambda: metrics.precision_at_recall([0], [0.5], NAN), "precision_at_recall: recall is nan"),
        (
            lambda: metrics.precision_at_k([0], [[0.1, 0.9]], 0),
            r"precision_at_k: k is 0, expected an integer in \[1, 2",
        ),
        (
            lambda: metrics.precision_at_k([0], [[0.1, 0.9]], 3),
            r"precision_at_k: k is 3, expected an integer in \[1, 2",
        ),
        (lambda: metrics.precision_at_k([2], [[0.1, 0.9]], 1), r"labels\[0, 0\] is 2, expected an integer in \[0, 2\)"),
        (lambda: metrics.recall_at_k([-2], [[0.1, 0.9]], 1), r"labels\[0, 0\] is -2, .* or -1 for no label"),
        (lambda: metrics.recall_at_k([0.0], [[0.1, 0.9]], 1), "recall_at_k: expected integers as labels, got float64"),
        (lambda: metrics.recall_at_k([0], [[0.1, NAN]], 1), "recall_at_k: a prediction is nan"),
        (lambda: metrics.recall_at_k([0], [[0.1, 0.9]], 1, class_id=-1), "recall_at_k: class_id is -1"),
        (lambda: metrics.precision_at_top_k([0], [[1, 1]]), r"predictions_idx names a class twice in row 0: \[1, 1\]"),
        (lambda: metrics.precision_at_top_k([0], [[1, 0]], k=3), "k is 3, but predictions_idx has shape"),
        (lambda: metrics.mean_cosine_distance([1.0], [1.0], 1), "dim is 1, but labels and predictions have rank 1"),
        (lambda: metrics.cosine_similarity([1.0], [1.0], axis=2), "axis is 2, but labels and predictions have rank 1"),
        (lambda: metrics.mean_relative_error([1.0], [1.0], [1.0, 2.0]), r"expected a normalizer of shape \(1,\)"),
        (lambda: metrics.percentage_below([1.0], NAN), "percentage_below: threshold is nan"),
        (lambda: metrics.binary_accuracy([1], [1.0], threshold=NAN), "binary_accuracy: threshold is nan"),
        (lambda: metrics.hinge([2.0], [1.0]), "hinge: a label is 2.0, expected 1, and -1 or 0 for the other class"),
        (lambda: metrics.binary_crossentropy([1], [1.5]), r"got 1.5; for logits pass from_logits=True"),
        (lambda: metrics.binary_crossentropy([1], [0.5], label_smoothing=2), "label_smoothing is 2, expected a number"),
        (lambda: metrics.poisson([1.0], [-1.0]), "poisson: expected numbers of 0 or more, got -1.0"),
        (lambda: metrics.kl_divergence([[0.5, -0.5]], [[0.5, 0.5]]), "kl_divergence: expected numbers of 0 or more"),
        (lambda: metrics.sparse_categorical_accuracy([4], [[0.1, 0.9]]), r"labels\[0\] is 4, expected an integer in"),
        (lambda: metrics.r2_score(1.0, 1.0), r"r2_score: expected arrays \(batch, columns\), got shape \(\)"),
        (
            lambda: metrics.r2_score([[1.0]], [[1.0]], class_aggregation="x"),
            "class_aggregation is 'x', expected one of",
        ),
        (
            lambda: metrics.f1_score(np.eye(2), np.eye(2), average="mean"),
            "f1_score: average is 'mean', expected 'micro'",
        ),
        (lambda: metrics.fbeta_score(np.eye(2), np.eye(2), beta=0.0), "fbeta_score: beta is 0.0, expected a finite"),
        (
            lambda: metrics.f1_score(np.eye(2), np.eye(2), threshold=1.5),
            r"threshold is 1.5, expected a number in \(0, 1",
        ),
        (
            lambda: metrics.mean_tensor([1.0]).merge(metrics.mean_tensor([1.0, 2.0])),
            r"a MeanTensor of shape \(2,\) cannot be merged with one of shape \(1,\); measure every batch alike",
        ),
        (
            lambda: metrics.auc([0], [0.5], thresholds=[0.5]).merge(metrics.auc([0], [0.5], thresholds=[0.25])),
            "a RocArea of thresholds .* cannot be merged with one of thresholds",
        ),
    ],
)
def test_wrong_use_is_refused_with_what_and_where(call, words):
    with pytest.raises(ModelFnError, match=words):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.auc([0, 1], [0.5, NAN]),
        lambda: metrics.auc([0, 1], [NAN, 0.5], curve="PR", summation_method="careful_interpolation"),
        lambda: metrics.precision_at_thresholds([0, 1], [0.5, NAN], [0.5]),
        lambda: metrics.false_negatives_at_thresholds([0, 1], [0.5, NAN], [0.5]),
        lambda: metrics.recall_at_precision([0, 1], [0.5, NAN], 0.5),
        lambda: metrics.sensitivity_at_specificity([0, 1], [0.5, NAN], 0.5),
        lambda: metrics.percentage_below([0.5, NAN], 1.0),
        lambda: metrics.binary_accuracy([0, 1], [0.5, NAN]),
        lambda: metrics.root_mean_squared_error([1.0], [NAN]),
        lambda: metrics.r2_score([[1.0], [2.0]], [[1.0], [NAN]]),
        lambda: metrics.mean_tensor([NAN]),
        lambda: metrics.poisson([1.0], [NAN]),
    ],
)
def test_a_number_that_is_nan_shows_in_the_result(call):
    assert np.isnan(call().result()).all()


def test_ranked_labels_may_be_fewer_than_a_row_holds():
    scores = [[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]]
    assert metrics.recall_at_k([[0, -1], [1, 2]], scores, 1).result() == pytest.approx(2 / 3)
    assert metrics.recall_at_k([[0, 0], [1, 2]], scores, 1).result() == pytest.approx(2 / 3), "a label counts once"
    assert math.isnan(metrics.average_precision_at_k([[-1], [2]], scores, 1).result())


def test_of_equal_predictions_the_lower_class_comes_first():
    assert metrics.precision_at_k([0], [[0.5, 0.5, 0.1]], 1).result() == 1.0
    assert metrics.precision_at_k([1], [[0.5, 0.5, 0.1]], 1).result() == 0.0


def test_an_array_is_written_as_numbers():
    assert as_numbers({"loss": 1.0, "at": np.array([0.5, 1.0]), "of": np.zeros((1, 2))}) == {
        "loss": 1.0,
        "at_0": 0.5,
        "at_1": 1.0,
        "of_0_0": 0.0,
        "of_0_1": 0.0,
    }
    with pytest.raises(ModelFnError, match="metric 'at' is an array, whose 'at_0' is a metric already; rename one"):
        as_numbers({"at_0": 1.0, "at": np.array([0.5])})


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
@pytest.mark.parametrize("of_labels", [(3,), (3, 1)])
def test_r2_score_takes_one_column_in_either_shape(shape, of_labels):
    labels, predictions = np.array([1.0, 2.0, 4.0]), np.array([1.5, 2.0, 3.0])
    squares, variance = 0.25 + 1.0, ((labels - labels.mean()) ** 2).sum()
    score = metrics.r2_score(labels.reshape(of_labels), predictions.reshape(shape), np.ones(3)).result()
    assert score == pytest.approx(1 - squares / variance)


@pytest.mark.parametrize(
    "measure",
    [
        metrics.mean_squared_error,
        metrics.root_mean_squared_error,
        metrics.mean_absolute_error,
        metrics.mean_absolute_percentage_error,
        metrics.mean_squared_logarithmic_error,
        metrics.log_cosh_error,
        metrics.cosine_similarity,
        lambda labels, guesses: metrics.mean_cosine_distance(labels, guesses, 0),
        lambda labels, guesses: metrics.mean_relative_error(labels, guesses, labels),
    ],
)
def test_no_metric_of_regression_broadcasts_a_column(measure):
    with pytest.raises(ModelFnError, match=r"one shape, got \(3,\) and \(3, 1\); reshape one of them"):
        measure(np.ones(3), np.ones((3, 1)))
