import numpy as np
import pytest
import sklearn.metrics

from psflow.ps_runtime.errors import InputError, LabelError, UsageError
from psflow.ps_runtime.losses import Reduction
from psflow.ps_runtime.model.canned.class_heads import BinaryClassHead

RNG = np.random.default_rng(9)
LABELS = RNG.integers(0, 2, 50)
LOGITS = (RNG.normal(size=(50, 1)) + LABELS[:, np.newaxis]).astype(np.float32)
WEIGHTS = RNG.integers(0, 4, 50).astype(np.float32)
HEAD = BinaryClassHead()


def results(labels, logits, weights=None, head=HEAD):
    mean_loss, _ = head.mean_loss(labels, logits, weights)
    measured = head.metrics(labels, head.predictions(logits), mean_loss, weights)
    return {name: metric.result() for name, metric in measured.items()}


def test_the_logistic_function_is_the_probability_of_class_1():
    predictions = HEAD.predictions(np.float32([[0.0], [-2.0], [2.0]]))
    np.testing.assert_allclose(predictions["logistic"][:, 0], [0.5, 1 / (1 + np.e**2), 1 / (1 + np.e**-2)], rtol=1e-6)
    np.testing.assert_allclose(predictions["probabilities"].sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(predictions["probabilities"][:, 1:], predictions["logistic"])
    assert predictions["class_ids"].tolist() == [[0], [0], [1]], "of equal probabilities class 0 is the first"


@pytest.mark.filterwarnings("error")
def test_huge_logits_are_still_probabilities():
    predictions = HEAD.predictions(np.float32([[1e4], [-1e4]]))
    assert predictions["probabilities"].tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_classes_are_words_where_there_is_a_vocabulary():
    logits = np.float32([[1.0], [-1.0]])
    predictions = BinaryClassHead(label_vocabulary=["no", "yes"]).predictions(logits)
    assert predictions["classes"].tolist() == [["yes"], ["no"]]
    assert predictions["all_classes"].tolist() == [["no", "yes"]] * 2
    assert HEAD.predictions(logits)["classes"].tolist() == [["1"], ["0"]]


@pytest.mark.parametrize(
    "labels",
    [LABELS, LABELS[:, None], LABELS == 1, LABELS.astype(np.float64), LABELS.tolist()],
    ids=["ids", "column", "truth values", "whole floats", "list"],
)
def test_labels_may_come_in_any_of_these_forms(labels, central_differences):
    loss, gradient = HEAD.loss(labels, LOGITS)
    probabilities = HEAD.predictions(LOGITS.astype(np.float64))["probabilities"]
    assert loss == pytest.approx(sklearn.metrics.log_loss(LABELS, probabilities), rel=1e-6)
    slopes = central_differences(lambda x: HEAD.loss(labels, x)[0], LOGITS.astype(np.float64))
    np.testing.assert_allclose(gradient, slopes, atol=1e-7)


@pytest.mark.parametrize("value", [2, -1, 0.5, np.nan])
def test_a_label_that_is_no_class_is_named_with_its_row(value):
    with pytest.raises(LabelError, match=rf"label of row 1 of the batch is {value}, expected an integer in \[0, 2\)"):
        HEAD.loss([0, value], LOGITS[:2])
    with pytest.raises(LabelError, match=rf"label of row 1 of the train input is {value}"):
        HEAD.check_labels([0, value], "the train input")


def test_one_hot_labels_are_refused():
    with pytest.raises(InputError, match=r"expected labels of shape \(50,\) for the 50 .*, got \(50, 2\)"):
        HEAD.loss(np.eye(2)[LABELS], LOGITS)


def test_metrics_are_those_of_scikit_learn():
    guesses, positive = LOGITS[:, 0] > 0, HEAD.predictions(LOGITS)["logistic"][:, 0]
    precisions, recalls, _ = sklearn.metrics.precision_recall_curve(LABELS, positive)
    assert results(LABELS, LOGITS) == pytest.approx(
        {
            "accuracy": sklearn.metrics.accuracy_score(LABELS, guesses),
            "accuracy_baseline": max(LABELS.mean(), 1 - LABELS.mean()),
            "auc": sklearn.metrics.roc_auc_score(LABELS, positive),
            "auc_precision_recall": sklearn.metrics.auc(recalls, precisions),
            "average_loss": sklearn.metrics.log_loss(LABELS, positive),
            "label/mean": LABELS.mean(),
            "precision": sklearn.metrics.precision_score(LABELS, guesses),
            "prediction/mean": positive.mean(),
            "recall": sklearn.metrics.recall_score(LABELS, guesses),
        },
        abs=5e-3,
    )


def test_each_threshold_has_metrics_of_its_own():
    head = BinaryClassHead(thresholds=[0.25])
    guesses = head.predictions(LOGITS)["logistic"][:, 0] > 0.25
    measured = results(LABELS, LOGITS, head=head)
    assert measured["accuracy/positive_threshold_0.25"] == sklearn.metrics.accuracy_score(LABELS, guesses)
    assert measured["precision/positive_threshold_0.25"] == sklearn.metrics.precision_score(LABELS, guesses)
    assert measured["recall/positive_threshold_0.25"] == sklearn.metrics.recall_score(LABELS, guesses)


def test_weighted_metrics_are_those_of_repeated_examples():
    repeats = np.repeat(np.arange(50), WEIGHTS.astype(int))
    assert results(LABELS, LOGITS, WEIGHTS) == pytest.approx(results(LABELS[repeats], LOGITS[repeats]), rel=1e-6)


@pytest.mark.parametrize(
    ("reduction", "divisor"),
    [
        (Reduction.SUM, 1),
        (Reduction.SUM_OVER_BATCH_SIZE, 50),
        (Reduction.MEAN, WEIGHTS.sum()),
        (Reduction.SUM_BY_NONZERO_WEIGHTS, np.count_nonzero(WEIGHTS)),
    ],
)
def test_the_divisor_of_the_losses_is_that_of_the_reduction(reduction, divisor, central_differences):
    head = BinaryClassHead(loss_reduction=reduction)
    loss, gradient = head.loss(LABELS, LOGITS, WEIGHTS)
    each = [HEAD.loss(LABELS[row : row + 1], LOGITS[row : row + 1])[0] for row in range(50)]
    assert loss == pytest.approx(np.dot(WEIGHTS, each) / divisor, rel=1e-5)
    slopes = central_differences(lambda x: head.loss(LABELS, x, WEIGHTS)[0], LOGITS.astype(np.float64))
    np.testing.assert_allclose(gradient, slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("reduction", [Reduction.MEAN, Reduction.SUM_BY_NONZERO_WEIGHTS])
def test_examples_without_weight_have_no_loss(reduction):
    loss, gradient = BinaryClassHead(loss_reduction=reduction).loss([0, 1], LOGITS[:2], np.zeros(2, np.float32))
    assert loss == 0.0
    assert not gradient.any()


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"thresholds": 0.5}, "BinaryClassHead: thresholds is 0.5, expected a list of numbers between 0 and 1"),
        ({"thresholds": [0.5, 1.0]}, "thresholds has 1.0, expected numbers between 0 and 1, exclusive"),
        ({"thresholds": [0]}, "thresholds has 0, expected numbers between 0 and 1"),
        ({"thresholds": [float("nan")]}, "thresholds has nan, expected numbers"),
        ({"thresholds": ["0.5"]}, "thresholds has '0.5', expected numbers"),
        ({"thresholds": [0.5, 0.5000000001]}, "thresholds has 0.5 twice"),
        ({"label_vocabulary": ["a", "b", "c"]}, "label_vocabulary has 3 names, expected 2, one for each class"),
    ],
)
def test_arguments_are_checked(arguments, fault):
    with pytest.raises(UsageError, match=fault):
        BinaryClassHead(**arguments)
