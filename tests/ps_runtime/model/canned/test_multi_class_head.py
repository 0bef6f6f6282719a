import numpy as np
import pytest
import scipy.special
import sklearn.metrics
from psflow.ps_runtime.model.canned.head import ClassifierHead

from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema

RNG = np.random.default_rng(9)
LOGITS = RNG.normal(size=(50, 3)).astype(np.float32)
LABELS = RNG.integers(0, 3, 50)
HEAD = ClassifierHead(3)


def test_predictions_are_softmax_and_its_best_class():
    predictions = HEAD.predictions(LOGITS)
    assert predictions["logits"] is LOGITS
    np.testing.assert_allclose(predictions["probabilities"], scipy.special.softmax(LOGITS, axis=1), rtol=1e-6)
    assert predictions["probabilities"].dtype == np.float32
    assert predictions["class_ids"].tolist() == LOGITS.argmax(axis=1).tolist()


@pytest.mark.filterwarnings("error")
def test_predictions_of_huge_logits_are_still_probabilities():
    probabilities = HEAD.predictions(np.array([[1e4, 0.0, -1e4]], np.float32))["probabilities"]
    assert probabilities.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "labels",
    [LABELS, LABELS[:, None], LABELS.astype(np.uint8), LABELS.astype(np.float64), LABELS.tolist()],
    ids=["ids", "column", "bytes", "whole floats", "list"],
)
def test_labels_may_come_in_any_of_these_forms(labels):
    loss, gradient = HEAD.loss(labels, LOGITS)
    expected = sklearn.metrics.log_loss(LABELS, scipy.special.softmax(LOGITS.astype(float), axis=1))
    assert loss == pytest.approx(expected, rel=1e-6)
    assert gradient.dtype == np.float32


def test_truth_values_are_labels_of_two_classes():
    events, logits = LABELS > 0, LOGITS[:, :2]
    assert ClassifierHead(2).loss(events, logits)[0] == ClassifierHead(2).loss(events.astype(int), logits)[0]


@pytest.mark.parametrize("value", [3, -1, 3.0, 1.5, np.nan, np.inf])
@pytest.mark.filterwarnings("error")
def test_a_label_that_is_no_class_is_named_with_its_row(value):
    with pytest.raises(InputError, match=rf"label of row 2 of the batch is {value}, expected an integer in \[0, 3\)"):
        HEAD.loss([0, 2, value, value], LOGITS[:4])


@pytest.mark.parametrize("labels", [np.array(["cat", "dog"]), np.array(["cat", None], object)])
def test_labels_that_are_no_numbers_are_shown(labels):
    with pytest.raises(
        InputError, match=r"expected integer labels, got (<U3|object) such as \['cat'\]; encode them as class"
    ):
        HEAD.loss(labels, LOGITS[:2])


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (None, r"a classifier needs labels, the batch has none; let input_fn return \(features, labels\)"),
        (LABELS[:7], r"expected labels of shape \(50,\) for the 50 examples of the batch, got \(7,\)"),
        (
            np.eye(3)[LABELS],
            r"expected labels of shape \(50,\) for the 50 examples of the batch, got \(50, 3\); one class id for each",
        ),
    ],
)
def test_labels_of_another_shape_are_refused(labels, words):
    with pytest.raises(InputError, match=words):
        HEAD.loss(labels, LOGITS)


def measured(head, labels, logits, batch):
    totals = {}
    for start in range(0, len(labels), batch):
        some, these = labels[start : start + batch], logits[start : start + batch]
        loss = head.loss(some, these)[0]
        for name, metric in head.metrics(some, head.predictions(these), loss).items():
            totals[name] = totals[name].merge(metric) if name in totals else metric
    return {name: metric.result() for name, metric in totals.items()}


def test_metrics_of_many_classes():
    results = measured(HEAD, LABELS[:, None], LOGITS, batch=16)
    assert set(results) == {"accuracy", "average_loss"}
    assert results["accuracy"] == sklearn.metrics.accuracy_score(LABELS, LOGITS.argmax(axis=1))
    assert results["average_loss"] == pytest.approx(HEAD.loss(LABELS, LOGITS)[0], rel=1e-6)


def test_metrics_of_two_classes():
    labels, logits = LABELS % 2, LOGITS[:, :2] + 2 * np.eye(2, dtype=np.float32)[LABELS % 2]
    results = measured(ClassifierHead(2), labels, logits, batch=16)
    guesses, positive = logits.argmax(axis=1), scipy.special.softmax(logits, axis=1)[:, 1]
    precisions, recalls, _ = sklearn.metrics.precision_recall_curve(labels, positive)
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(labels, guesses),
        "accuracy_baseline": max(labels.mean(), 1 - labels.mean()),
        "auc": sklearn.metrics.roc_auc_score(labels, positive),
        "auc_precision_recall": sklearn.metrics.auc(recalls, precisions),
        "average_loss": sklearn.metrics.log_loss(labels, positive),
        "label/mean": labels.mean(),
        "precision": sklearn.metrics.precision_score(labels, guesses),
        "prediction/mean": positive.mean(),
        "recall": sklearn.metrics.recall_score(labels, guesses),
    }
    assert results == pytest.approx(expected, abs=2e-3)


def test_metrics_of_two_classes_are_those_of_tensorflow():
    """`tf.estimator.BinaryClassHead` of TensorFlow 2.15.1, evaluated on these logits in batches of 3."""
    logits = np.array([-3.2, -1.1, -0.4, 0.3, 0.9, 1.7, 2.5, -2.0], np.float32)
    labels = np.array([0, 1, 0, 1, 0, 1, 1, 0])
    results = measured(ClassifierHead(2), labels, np.stack([np.zeros(8, np.float32), logits], axis=1), batch=3)
    expected = {
        "accuracy": 0.75,
        "accuracy_baseline": 0.5,
        "auc": 0.8125,
        "auc_precision_recall": 0.8369187,
        "average_loss": 0.5136771,
        "label/mean": 0.5,
        "precision": 0.75,
        "prediction/mean": 0.4830612,
        "recall": 0.75,
    }
    assert results == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("labels", [LABELS, LABELS[:, None], LABELS.astype(np.float32), LABELS[:0]])
def test_labels_of_a_whole_data_set_pass(labels):
    HEAD.check_labels(labels, "the train input")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.arange(5), r"label of row 3 of the train input is 3, expected an integer in \[0, 3\)"),
        (np.array([0.0, 0.5]), r"label of row 1 of the train input is 0.5, expected an integer"),
        (None, "a classifier needs labels, the train input has none"),
        ({"label": LABELS}, r"expected labels of shape \(1,\) .* of the train input, got \(\)"),
        (np.eye(3), r"expected labels of shape \(3,\) for the 3 examples of the train input, got \(3, 3\)"),
    ],
)
def test_labels_of_a_whole_data_set_are_refused_by_their_row(labels, words):
    with pytest.raises(InputError, match=words):
        HEAD.check_labels(labels, "the train input")


WEIGHTS = RNG.integers(0, 4, 50).astype(np.float32)


def test_weights_multiply_the_losses_and_the_divisor_is_the_number_of_examples():
    loss, gradient = HEAD.loss(LABELS, LOGITS, WEIGHTS)
    each = [HEAD.loss(LABELS[row : row + 1], LOGITS[row : row + 1]) for row in range(50)]
    assert loss == pytest.approx(np.dot(WEIGHTS, [one[0] for one in each]) / 50, rel=1e-6)
    expected = np.concatenate([one[1] for one in each]) * WEIGHTS[:, None] / 50
    np.testing.assert_allclose(gradient, expected, atol=1e-7)
    assert gradient.dtype == np.float32


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weighted_metrics_are_those_of_repeated_examples(n_classes):
    head, labels, logits = ClassifierHead(n_classes), LABELS % n_classes, LOGITS[:, :n_classes]
    repeats = np.repeat(np.arange(50), WEIGHTS.astype(int))
    weighted = head.metrics(labels, head.predictions(logits), head.loss(labels, logits, WEIGHTS)[0], WEIGHTS)
    more_labels, more_logits = labels[repeats], logits[repeats]
    repeated = head.metrics(more_labels, head.predictions(more_logits), head.loss(more_labels, more_logits)[0])
    assert {name: metric.result() for name, metric in weighted.items()} == pytest.approx(
        {name: metric.result() for name, metric in repeated.items()}, rel=1e-6
    )


def schema_of(*classes):
    label = Label(Column(RawColumn("pet", "string"), "string"), "int64", classes or None)
    return InputSchema((), label="pet", preprocessing=Preprocessing((), (), label=label))


def test_there_are_as_many_classes_as_words_and_predictions_say_them():
    head = ClassifierHead.reading(None, schema_of("cat", "dog", "elk"))
    assert head == ClassifierHead.reading(3, schema_of("cat", "dog", "elk")) == ClassifierHead(3, ("cat", "dog", "elk"))
    assert head.predictions(np.float32([[0, 0, 1], [1, 0, 0]]))["classes"].tolist() == ["elk", "cat"]
    assert ClassifierHead.reading(None, schema_of()) == ClassifierHead(2)
    assert ClassifierHead.reading(5, InputSchema(())) == ClassifierHead(5)


@pytest.mark.parametrize(
    ("n_classes", "words", "fault"),
    [
        (2, ("cat", "dog", "elk"), "n_classes is 2, but the label 'pet' has 3 classes, 'cat', 'dog', 'elk'; leave"),
        (None, ("cat",), "the label 'pet' has one class, 'cat': expected at least 2"),
    ],
)
def test_another_number_of_classes_than_words_is_refused(n_classes, words, fault):
    with pytest.raises(InputError, match=fault):
        ClassifierHead.reading(n_classes, schema_of(*words))
