import math

import numpy as np
import pytest
import scipy.special
import sklearn.metrics

from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.losses import mean_squared_error, sigmoid_cross_entropy, softmax_cross_entropy

RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=(6, 4)) * 3
CLASSES = np.array([0, 3, 1, 1, 2, 0])
EVENTS = RNG.uniform(size=(6, 4))

CASES = [
    pytest.param(softmax_cross_entropy, CLASSES, id="softmax_cross_entropy"),
    pytest.param(sigmoid_cross_entropy, EVENTS, id="sigmoid_cross_entropy"),
    pytest.param(mean_squared_error, EVENTS, id="mean_squared_error"),
]


@pytest.mark.parametrize(("loss", "labels"), CASES)
def test_the_gradient_agrees_with_central_differences(loss, labels, central_differences):
    gradient = loss(labels, LOGITS)[1]
    np.testing.assert_allclose(gradient, central_differences(lambda x: loss(labels, x)[0], LOGITS), atol=1e-9)
    assert np.abs(gradient).max() > 0.01


@pytest.mark.parametrize(("loss", "labels"), CASES)
def test_keeps_float32_and_its_arguments(loss, labels):
    logits = LOGITS.astype(np.float32)
    before = logits.copy()
    value, gradient = loss(labels, logits)
    assert type(value) is float
    assert gradient.dtype == np.float32
    assert np.array_equal(logits, before)
    expected_value, expected_gradient = loss(labels, LOGITS)
    assert value == pytest.approx(expected_value, rel=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-6)


@pytest.mark.parametrize(("loss", "labels"), CASES)
def test_a_batch_of_nothing_has_no_mean(loss, labels):
    value, gradient = loss(labels[:0], LOGITS[:0])
    assert math.isnan(value)
    assert gradient.shape == (0, 4)


@pytest.mark.parametrize(("loss", "labels"), CASES)
def test_a_nan_among_the_logits_reaches_the_loss(loss, labels):
    logits = LOGITS.copy()
    logits[2, 1] = math.nan
    assert math.isnan(loss(labels, logits)[0])


def test_softmax_cross_entropy_is_log_loss():
    expected = sklearn.metrics.log_loss(CLASSES, scipy.special.softmax(LOGITS, axis=1))
    assert softmax_cross_entropy(CLASSES, LOGITS)[0] == pytest.approx(expected, rel=1e-12)


def test_sigmoid_cross_entropy_is_binary_log_loss():
    events = np.array([0, 1, 1, 0, 1, 0])
    expected = sklearn.metrics.log_loss(events, scipy.special.expit(LOGITS[:, 0]))
    assert sigmoid_cross_entropy(events, LOGITS[:, 0])[0] == pytest.approx(expected, rel=1e-12)


def test_mean_squared_error_is_the_mean_over_all_elements():
    expected = sklearn.metrics.mean_squared_error(EVENTS.ravel(), LOGITS.ravel())
    assert mean_squared_error(EVENTS, LOGITS)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("error")
def test_huge_logits_overflow_nowhere(dtype):
    logits = np.array([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], dtype)
    loss, gradient = softmax_cross_entropy(np.array([1, 1]), logits)
    assert loss == pytest.approx((2e4 + math.log(2.0)) / 2, rel=1e-6)
    np.testing.assert_allclose(gradient, [[0.5, -0.5, 0.0], [0.0, -0.25, 0.25]], atol=1e-7)
    loss, gradient = sigmoid_cross_entropy(np.array([0, 1, 1]), logits[0])
    assert loss == pytest.approx((2e4 + math.log(2.0)) / 3, rel=1e-6)
    np.testing.assert_allclose(gradient, np.array([1.0, -1.0, -0.5]) / 3, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_class_labels_may_be_any_integers(dtype):
    assert softmax_cross_entropy(CLASSES.astype(dtype), LOGITS)[0] == softmax_cross_entropy(CLASSES, LOGITS)[0]


@pytest.mark.parametrize("label", [-1, 4, 2**40])
def test_a_label_out_of_range_is_named_with_its_row(label):
    labels = CLASSES.copy()
    labels[3] = label
    labels[5] = -7
    with pytest.raises(InputError, match=rf"label of row 3 of the batch is {label}, expected an integer in \[0, 4\)"):
        softmax_cross_entropy(labels, LOGITS)


def test_float_class_labels_are_refused():
    with pytest.raises(ModelFnError, match="expected integer labels, got float64; convert them"):
        softmax_cross_entropy(CLASSES.astype(float), LOGITS)


@pytest.mark.parametrize(
    ("loss", "labels", "others"),
    [
        (softmax_cross_entropy, CLASSES[:, None], LOGITS),
        (softmax_cross_entropy, CLASSES[:5], LOGITS),
        (softmax_cross_entropy, CLASSES, LOGITS[:, 0]),
        (sigmoid_cross_entropy, EVENTS[:, 0], LOGITS[:, :1]),
        (mean_squared_error, EVENTS[:, 0], LOGITS[:, :1]),
    ],
)
def test_shapes_that_would_broadcast_are_refused(loss, labels, others):
    with pytest.raises(ModelFnError, match=rf"{loss.__name__}: expected labels .* got \(.*\) and \(.*; reshape one"):
        loss(labels, others)
