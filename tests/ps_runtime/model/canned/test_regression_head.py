import numpy as np
import pytest
import sklearn.metrics

from psflow.ps_runtime.columns.features import Standard
from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.canned.regression_head import RegressionHead
from psflow.ps_runtime.specs.schema import InputSchema

RNG = np.random.default_rng(12)
OUTPUTS = RNG.normal(size=(50, 2)).astype(np.float32)
LABELS = RNG.normal(size=(50, 2))
ONE, TWO = RegressionHead(1), RegressionHead(2)


@pytest.mark.parametrize(("head", "columns"), [(ONE, 1), (TWO, 2)])
def test_predictions_are_the_outputs(head, columns):
    assert head.logits_dimension == columns
    outputs = OUTPUTS[:, :columns]
    assert head.predictions(outputs)["predictions"] is outputs


@pytest.mark.parametrize(("head", "columns"), [(ONE, 1), (TWO, 2)])
def test_the_loss_is_the_mean_squared_error_of_all_numbers(head, columns, central_differences):
    labels, outputs = LABELS[:, :columns], OUTPUTS[:, :columns]
    loss, gradient = head.loss(labels, outputs)
    assert loss == pytest.approx(sklearn.metrics.mean_squared_error(labels, outputs), rel=1e-6)
    slopes = central_differences(lambda x: head.loss(labels, x)[0], outputs.astype(np.float64))
    np.testing.assert_allclose(gradient, slopes, atol=1e-7)


@pytest.mark.parametrize("labels", [LABELS[:, :1], LABELS[:, 0], LABELS[:, 0].tolist()], ids=["column", "row", "list"])
def test_labels_of_one_number_may_come_in_any_of_these_forms(labels):
    loss, gradient = ONE.loss(labels, OUTPUTS[:, :1])
    expected, slopes = ONE.loss(LABELS[:, :1], OUTPUTS[:, :1])
    assert loss == expected
    assert np.array_equal(gradient, slopes)


def test_truth_values_and_counts_are_numbers():
    events = LABELS[:, 0] > 0
    assert ONE.loss(events, OUTPUTS[:, :1])[0] == ONE.loss(events.astype(np.int8), OUTPUTS[:, :1])[0]


def test_metrics_are_of_all_examples():
    totals = {}
    for start in range(0, 50, 16):
        labels, outputs = LABELS[start : start + 16], OUTPUTS[start : start + 16]
        measured = TWO.metrics(labels, TWO.predictions(outputs), TWO.loss(labels, outputs)[0])
        totals = {name: totals[name].merge(metric) if totals else metric for name, metric in measured.items()}
    assert {name: metric.result() for name, metric in totals.items()} == pytest.approx(
        {"average_loss": TWO.loss(LABELS, OUTPUTS)[0], "label/mean": LABELS.mean(), "prediction/mean": OUTPUTS.mean()},
        rel=1e-5,
    )


@pytest.mark.parametrize(
    ("head", "labels", "words"),
    [
        (ONE, None, r"a regressor needs labels, the train input has none; return \(features, labels\) from input_fn"),
        (
            ONE,
            LABELS,
            r"labels of shape \(50, 1\) for the 50 examples of the train input, got \(50, 2\); set label_dim",
        ),
        (TWO, LABELS[:, 0], r"expected labels of shape \(50, 2\) .*, got \(50,\); set label_dimension to the size"),
        (TWO, LABELS.T, r"expected labels of shape \(2, 2\) .*, got \(2, 50\)"),
        (ONE, np.array(["cheap", "dear"]), r"expected labels that are numbers, got <U5 such as \['cheap'\]"),
        (ONE, {"price": LABELS}, r"expected labels of shape \(1, 1\) .*, got \(\)"),
    ],
)
def test_other_labels_are_refused(head, labels, words):
    with pytest.raises(InputError, match=words):
        head.check_labels(labels, "the train input")


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(np.int64), LABELS[:0]])
def test_labels_of_a_whole_data_set_pass(labels):
    TWO.check_labels(labels, "the train input")


def test_as_many_labels_as_examples():
    with pytest.raises(InputError, match=r"labels of shape \(50, 2\) for the 50 examples of the batch, got \(49, 2\)"):
        TWO.loss(LABELS[:49], OUTPUTS)


WEIGHTS = np.random.default_rng(3).integers(0, 3, 50).astype(np.float32)
NORMALIZED = RegressionHead(2, mean=1e5, deviation=2e4)
LARGE = LABELS * 2e4 + 1e5


def test_weights_multiply_the_losses_and_the_divisor_is_the_number_of_numbers(central_differences):
    loss, gradient = TWO.loss(LABELS, OUTPUTS, WEIGHTS)
    expected = sklearn.metrics.mean_squared_error(LABELS, OUTPUTS, sample_weight=WEIGHTS) * WEIGHTS.sum() / 50
    assert loss == pytest.approx(expected, rel=1e-6)
    slopes = central_differences(lambda x: TWO.loss(LABELS, x, WEIGHTS)[0], OUTPUTS.astype(np.float64))
    np.testing.assert_allclose(gradient, slopes, atol=1e-7)


def test_weighted_metrics_are_those_of_repeated_examples():
    repeats = np.repeat(np.arange(50), WEIGHTS.astype(int))
    weighted = TWO.metrics(LABELS, TWO.predictions(OUTPUTS), TWO.loss(LABELS, OUTPUTS, WEIGHTS)[0], WEIGHTS)
    labels, outputs = LABELS[repeats], OUTPUTS[repeats]
    repeated = TWO.metrics(labels, TWO.predictions(outputs), TWO.loss(labels, outputs)[0])
    assert {name: metric.result() for name, metric in weighted.items()} == pytest.approx(
        {name: metric.result() for name, metric in repeated.items()}, rel=1e-6
    )


def test_normalized_labels_are_learned_small_and_predicted_large():
    loss, gradient = NORMALIZED.loss(LARGE, OUTPUTS)
    expected, slopes = TWO.loss(LABELS, OUTPUTS)
    assert loss == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(gradient, slopes, atol=1e-7)
    predictions = NORMALIZED.predictions(OUTPUTS)
    np.testing.assert_allclose(predictions["predictions"], OUTPUTS * 2e4 + 1e5, rtol=1e-6)
    metrics = NORMALIZED.metrics(LARGE, predictions, loss)
    assert metrics["average_loss"].result() == pytest.approx(expected * 2e4**2, rel=1e-6)
    assert metrics["label/mean"].result() == pytest.approx(LARGE.mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("normalizer", "head"),
    [
        (Standard(5.0, 2.0), RegressionHead(mean=5.0, deviation=2.0)),
        (Standard(5.0, 0.0), RegressionHead(mean=5.0, deviation=1.0)),
        (None, RegressionHead()),
    ],
)
def test_the_label_says_how_it_is_normalized(normalizer, head):
    label = Label(Column(RawColumn("y", "float64"), "float64"), "float32", normalizer=normalizer)
    schema = InputSchema((), label="y", preprocessing=Preprocessing((), (), label=label))
    assert RegressionHead().reading(schema) == head
