import functools
import math
import pickle

import autograd
import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow import metrics
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.metrics import MajorityShare, Mean, Ratio, Sum

SIZE = 400
RNG = np.random.default_rng(8)
LABELS = RNG.integers(0, 2, SIZE)
# in the middle between two thresholds: then 200 of them see as much as all values of scikit-learn
PROBABILITIES = (np.clip(RNG.integers(0, 150, SIZE) + 49 * LABELS, 0, 198) + 0.5) / 199
GUESSES = (PROBABILITIES > 0.5).astype(int)
CLASSES, CLASS_GUESSES = RNG.integers(0, 10, SIZE), RNG.integers(0, 10, SIZE)
NUMBERS, NUMBER_GUESSES = RNG.normal(size=SIZE), RNG.normal(size=SIZE)
WEIGHTS = RNG.integers(0, 4, SIZE).astype(float)


def area_under_precision_recall(labels, predictions, sample_weight=None):
    precisions, recalls, _ = sklearn.metrics.precision_recall_curve(labels, predictions, sample_weight=sample_weight)
    return sklearn.metrics.auc(recalls, precisions)


# metric, its arguments, and the same from scikit-learn over all examples at once
CASES = {
    "accuracy": (metrics.accuracy, (CLASSES, CLASS_GUESSES), sklearn.metrics.accuracy_score),
    "mean_squared_error": (
        metrics.mean_squared_error,
        (NUMBERS, NUMBER_GUESSES),
        sklearn.metrics.mean_squared_error,
    ),
    "mean_absolute_error": (
        metrics.mean_absolute_error,
        (NUMBERS, NUMBER_GUESSES),
        sklearn.metrics.mean_absolute_error,
    ),
    "precision": (metrics.precision, (LABELS, GUESSES), sklearn.metrics.precision_score),
    "recall": (metrics.recall, (LABELS, GUESSES), sklearn.metrics.recall_score),
    "auc": (metrics.auc, (LABELS, PROBABILITIES), sklearn.metrics.roc_auc_score),
    "auc_precision_recall": (
        functools.partial(metrics.auc, curve="PR"),
        (LABELS, PROBABILITIES),
        area_under_precision_recall,
    ),
}
EMPTY = [Mean(), MajorityShare(), Ratio(), Sum()]


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def case(request):
    return request.param


def merged(measure, columns, cuts):
    batches = zip(*(np.split(column, cuts) for column in columns), strict=True)
    return functools.reduce(lambda a, b: a.merge(b), (measure(*batch) for batch in batches))


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, SIZE), max_size=6).map(sorted))
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_merge_to_scikit_learn_on_the_whole(name, weighted, cuts):
    measure, columns, expected = CASES[name]
    if weighted:
        whole = expected(*columns, sample_weight=WEIGHTS)
        columns = (*columns, WEIGHTS)
    else:
        whole = expected(*columns)
    assert merged(measure, columns, cuts).result() == pytest.approx(whole, rel=1e-12)


def test_merging_is_associative_and_commutative(case):
    measure, columns, _ = case
    a, b, c = (measure(*(column[part::3] for column in columns)) for part in range(3))
    results = [a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)]
    assert [r.result() for r in results] == pytest.approx([results[0].result()] * 3, rel=1e-14)


def test_the_empty_metric_is_neutral_and_its_result_is_nan(case):
    measure, columns, _ = case
    one = measure(*columns)
    empty = measure(*(column[:0] for column in columns))
    assert math.isnan(empty.result())
    assert one.merge(empty).result() == empty.merge(one).result() == one.result()


def test_metrics_survive_pickling(case):
    measure, columns, _ = case
    one = measure(*columns)
    again = pickle.loads(pickle.dumps(one))
    assert type(again.result()) is float
    assert again.result() == one.result()
    assert again.merge(one).result() == pytest.approx(one.result())


def test_metrics_are_frozen(case):
    measure, columns, _ = case
    with pytest.raises(AttributeError, match="cannot assign"):
        measure(*columns).result = None


def test_merging_another_kind_is_refused():
    for one in EMPTY:
        for other in EMPTY:
            if one is not other:
                with pytest.raises(ModelFnError, match=f"a {type(one).__name__} cannot be merged with a"):
                    one.merge(other)


def test_auc_on_any_probabilities_is_near_scikit_learn():
    probabilities = RNG.beta(2 + LABELS, 3 - LABELS)
    expected = sklearn.metrics.roc_auc_score(LABELS, probabilities)
    assert metrics.auc(LABELS, probabilities.astype(np.float32)).result() == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("curve", ["ROC", "PR"])
def test_auc_of_perfect_and_of_hopeless_predictions(curve):
    assert metrics.auc(LABELS, LABELS, curve=curve).result() == 1.0
    assert metrics.auc(LABELS, 1 - LABELS, curve=curve).result() <= (0.0 if curve == "ROC" else LABELS.mean())


def test_auc_counts_a_prediction_on_a_threshold_as_not_above_it():
    assert metrics.auc([0, 1], [99.5 / 199, 100 / 199]).result() == 0.5
    assert metrics.auc([0, 1], [99.5 / 199, 100.5 / 199]).result() == 1.0


def test_auc_needs_what_it_divides_by():
    assert math.isnan(metrics.auc([1, 1], [0.1, 0.9]).result())
    assert math.isnan(metrics.auc([0, 0], [0.1, 0.9]).result())
    assert math.isnan(metrics.auc([0, 0], [0.1, 0.9], curve="PR").result())


def test_a_nan_among_the_values_is_not_hidden():
    assert math.isnan(metrics.auc([0, 1, 1], [0.1, math.nan, 0.9]).result())
    assert math.isnan(metrics.auc([0, 1, 1], [0.1, math.nan, 0.9], curve="PR").result())
    assert math.isnan(metrics.mean([1.0, math.nan]).result())
    assert math.isnan(metrics.mean_squared_error([1.0], [math.nan]).result())


@pytest.mark.parametrize("value", [-0.01, 1.5, math.inf])
def test_auc_refuses_what_is_no_probability(value):
    with pytest.raises(ModelFnError, match=rf"auc: expected probabilities in \[0, 1\], got {value}"):
        metrics.auc([0, 1], [0.5, value])


def test_auc_knows_two_curves():
    with pytest.raises(ModelFnError, match="curve is 'RO', expected 'ROC' or 'PR'; did you mean 'ROC'"):
        metrics.auc([0, 1], [0.5, 0.5], curve="RO")


def test_precision_and_recall_without_candidates_are_zero_but_without_examples_nan():
    assert metrics.precision([0, 1], [0, 0]).result() == 0.0
    assert metrics.recall([0, 0], [0, 1]).result() == 0.0
    assert math.isnan(metrics.precision([0, 1], [1, 1], weights=[0, 0]).result())


def test_mean_is_summed_in_float64():
    values = np.full(1_000_000, 0.1, np.float32)
    assert metrics.mean(values).result() == pytest.approx(float(np.float32(0.1)), rel=1e-12)
    assert metrics.mean([[1.0, 3.0], [5.0, 7.0]], weights=[1.0, 0.0]).result() == 2.0, "weights are those of rows"
    assert metrics.mean(4.0).result() == 4.0


def test_unsigned_labels_do_not_wrap():
    assert metrics.mean_absolute_error(np.array([3], np.uint8), np.array([1], np.uint8)).result() == 2.0


def test_accuracy_baseline_is_the_share_of_the_majority():
    assert metrics.accuracy_baseline([0, 0, 0, 1]).result() == 0.75
    assert metrics.accuracy_baseline([1, 1]).merge(metrics.accuracy_baseline([0])).result() == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "measure",
    [
        metrics.accuracy,
        metrics.mean_squared_error,
        metrics.mean_absolute_error,
        metrics.precision,
        metrics.recall,
        metrics.auc,
    ],
)
def test_shapes_that_would_broadcast_are_refused(measure):
    with pytest.raises(
        ModelFnError, match=rf"{measure.__name__}: expected labels and predictions of one shape, got \(3,\) and \(3, 1"
    ):
        measure(np.zeros(3), np.zeros((3, 1)))


def test_a_traced_value_is_measured_by_its_plain_numbers():
    seen = []

    def loss(x):
        seen.append(metrics.mean(x))
        return (x * x).sum()

    autograd.grad(loss)(np.array([1.0, 3.0]))
    assert pickle.loads(pickle.dumps(seen[0])) == Mean(4.0, 2.0)
