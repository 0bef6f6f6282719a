"""Gradients of tables, manually and by autograd: the same numbers, the same refusals."""

from __future__ import annotations

import itertools

import autograd.numpy as anp
import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn
from psflow.ps_runtime.model.calls.scope import get_or_create_global_step, get_variable
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.lookups import Lookups, RowGradient, SparseGradient
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Adam, GradientDescent
from tests.ps_runtime.model.tables import ArrayRows

RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(9, 4)).astype(np.float32)
W = RNG.normal(size=4).astype(np.float32)
IDS = np.array([[3, 8, 3], [0, 3, 5], [7, 7, 7]])
GAPS = np.array([[3, 8, 3], [0, -1, 5], [-1, -1, -1], [7, -1, -1]])
SGD = GradientDescent(learning_rate=0.5)
ADAM = Adam(learning_rate=0.25)


def training(model_fn, features=IDS):
    caller = ModelCaller(model_fn, {}, None)
    return GradientFn(caller, caller.build(features, None, ModeKeys.TRAIN, seed=1))


def step(model_fn, features=IDS, rows=None, variables=None, global_step=0, lookups=None):
    source = ArrayRows(items=ROWS) if rows is None else rows
    return training(model_fn, features)(features, None, variables or {"w": W}, global_step, source, lookups)


def dense(gradient, num_rows=9):
    """Return a RowGradient as the gradient of all rows; each id stands there once."""
    assert isinstance(gradient, RowGradient)
    assert len(set(gradient.ids.tolist())) == len(gradient.ids)
    whole = np.zeros((num_rows, gradient.values.shape[1]))
    whole[gradient.ids] = gradient.values
    return whole


def traced(loss_of, train_op=SGD.minimize):
    def model_fn(features):
        loss = loss_of(features)
        return EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=train_op(loss))

    return model_fn


def linear(features):
    return anp.mean(anp.tanh(anp.dot(embedding_lookup("items", features, 9, 4), get_variable("w", (4,)))))


def linear_by_hand(features):
    items, w = embedding_lookup("items", features, 9, 4), get_variable("w", (4,))
    activation = np.tanh(items @ w)
    of_activation = (1 - activation**2) / activation.size
    gradients = {
        "items": SparseGradient(features, of_activation[..., np.newaxis] * w),
        "w": np.einsum("nk,nkd->d", of_activation, items),
    }
    return EstimatorSpec(ModeKeys.TRAIN, loss=activation.mean(), train_op=SGD.apply_gradients(gradients))


def test_autograd_agrees_with_gradients_by_hand():
    found, expected = step(traced(linear)), step(linear_by_hand)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    assert found.gradients.keys() == expected.gradients.keys() == {"w", "items"}
    np.testing.assert_allclose(found.gradients["w"], expected.gradients["w"], rtol=1e-5)
    for result in (found, expected):
        assert result.gradients["items"].ids.tolist() == [0, 3, 5, 7, 8]
        assert result.gradients["items"].ids.dtype == np.int64
        assert result.gradients["items"].values.dtype == np.float32
        assert result.gradients["items"].values.flags.c_contiguous
    np.testing.assert_allclose(
        found.gradients["items"].values, expected.gradients["items"].values, rtol=1e-4, atol=1e-7
    )


def numeric(loss_of, rows, eps=1e-6):
    gradient = np.zeros_like(rows)
    for place in np.ndindex(*rows.shape):
        ends = []
        for sign in (1, -1):
            moved = rows.copy()
            moved[place] += sign * eps
            ends.append(loss_of(moved))
        gradient[place] = (ends[0] - ends[1]) / (2 * eps)
    return gradient


@pytest.mark.parametrize(
    ("combiner", "weighted"),
    [(None, False), *itertools.product(["sum", "mean", "sqrtn"], [False, True])],
)
def test_gradients_of_each_combiner_are_right(combiner, weighted):
    ids = GAPS if combiner else IDS
    factors = RNG.normal(size=(*ids.shape, 4) if combiner is None else (len(ids), 4))
    wide, scores = ROWS.astype(np.float64), RNG.uniform(0.5, 2, size=ids.shape)

    def loss_of(features):
        weights = anp.exp(get_variable("w", ids.shape, np.float64)) if weighted else None
        items = embedding_lookup("items", features, 9, 4, dtype=np.float64, combiner=combiner, weights=weights)
        return anp.sum(factors * anp.tanh(items))

    def run(rows, weights):
        return step(traced(loss_of), ids, ArrayRows(items=rows), {"w": weights})

    found = run(wide, scores).gradients
    assert found["items"].values.dtype == np.float64
    np.testing.assert_allclose(dense(found["items"]), numeric(lambda r: run(r, scores).loss, wide), atol=1e-8)
    if weighted:
        np.testing.assert_allclose(found["w"], numeric(lambda s: run(wide, s).loss, scores), atol=1e-8)
        assert np.isfinite(found["w"]).all()


def test_float64_labels_do_not_widen_a_float32_gradient():
    found = step(traced(lambda features: anp.sum(embedding_lookup("items", features, 9, 4) * np.ones(4)))).gradients
    assert found["items"].values.dtype == np.float32


def test_lookups_in_one_table_add_up():
    def loss_of(features):
        left = embedding_lookup("items", features, 9, 4, combiner="sum")
        right = embedding_lookup("items", features[:, 1:] % 4, 9, 4)
        again = embedding_lookup("items", features, 9, 4)
        return anp.sum(left) + 10 * anp.sum(right) + 100 * anp.sum(again)

    expected = np.zeros((9, 4))
    np.add.at(expected, IDS.ravel(), 101)
    np.add.at(expected, IDS[:, 1:].ravel() % 4, 10)
    source = ArrayRows(items=ROWS)
    np.testing.assert_allclose(dense(step(traced(loss_of), rows=source).gradients["items"]), expected)
    assert source.asked == [("items", [0, 3, 5, 7, 8]), ("items", [0, 1, 3])]


def test_sparse_gradients_of_one_table_add_up():
    one = SparseGradient([[3, 4], [-1, 3]], np.ones((2, 2, 4), np.float32))
    other = SparseGradient(4, np.full(4, 10))

    def model_fn(features):
        return EstimatorSpec(ModeKeys.TRAIN, loss=0.0, train_op=SGD.apply_gradients({"items": one + other}))

    def built(features):
        embedding_lookup("items", features, 9, 4)
        return model_fn(features)

    found = step(built).gradients["items"]
    assert found.ids.tolist() == [3, 4]
    assert found.values.tolist() == [[2] * 4, [11] * 4]


def given(gradient, ids=GAPS):
    """Return what becomes of a gradient that a model_fn gives for the table."""

    def model_fn(features):
        embedding_lookup("items", features, 9, 4, combiner="sum")
        return EstimatorSpec(ModeKeys.TRAIN, loss=0.0, train_op=SGD.apply_gradients({"items": gradient}))

    return step(model_fn, ids).gradients["items"]


@pytest.mark.parametrize("ids", [IDS, GAPS])
def test_ids_that_were_joined_may_share_a_value(ids):
    values = RNG.normal(size=(len(ids), 1, 4)).astype(np.float32)
    repeated = np.repeat(values, ids.shape[1], axis=1)
    expected = given(SparseGradient(ids, repeated), ids)
    for same in (values, np.broadcast_to(values, repeated.shape)):
        found = given(SparseGradient(ids, same), ids)
        assert found.ids.tolist() == expected.ids.tolist()
        np.testing.assert_array_equal(found.values, expected.values)
        twice = given(SparseGradient(ids, same) + SparseGradient(ids, repeated), ids)
        np.testing.assert_allclose(twice.values, 2 * expected.values, rtol=1e-5)


@pytest.mark.parametrize("shape", [(4, 2, 4), (1, 1, 4), (4, 1, 1), (4, 4)])
def test_values_are_not_repeated_otherwise(shape):
    with pytest.raises(ModelFnError, match=r"expected float32\[4, 3, 4\]: a row for each of its ids"):
        given(SparseGradient(GAPS, np.ones(shape)))


def test_a_model_may_consist_of_tables_alone():
    found = step(traced(lambda features: anp.sum(embedding_lookup("items", features, 9, 4)))).gradients
    assert found.keys() == {"items"}


@pytest.mark.parametrize("combiner", ["sum", "sqrtn"])
def test_a_batch_without_ids_moves_no_row(combiner):
    def loss_of(features):
        return anp.sum(embedding_lookup("items", features, 9, 4, combiner=combiner) + get_variable("w", (4,)))

    found = step(traced(loss_of), np.full((2, 3), -1)).gradients
    assert found.keys() == {"w"}
    absent = SparseGradient([-1], np.ones((1, 4)))

    def by_hand(features):
        embedding_lookup("items", features, 9, 4)
        return EstimatorSpec(ModeKeys.TRAIN, loss=0.0, train_op=SGD.apply_gradients({"items": absent}))

    assert step(by_hand).gradients == {}


def test_a_table_that_the_loss_does_not_depend_on_has_no_gradient():
    def loss_of(features):
        embedding_lookup("items", features, 9, 4)
        return anp.sum(get_variable("w", (4,)))

    assert step(traced(loss_of)).gradients.keys() == {"w"}


def test_a_var_list_may_name_tables():
    one = step(traced(linear, lambda loss: SGD.minimize(loss, var_list=["items"])))
    assert one.gradients.keys() == {"items"}
    assert step(traced(linear, lambda loss: SGD.minimize(loss, var_list=["w"]))).gradients.keys() == {"w"}
    both = step(
        traced(linear, lambda loss: [SGD.minimize(loss, var_list=["items"]), ADAM.minimize(loss, var_list=["w"])])
    )
    assert both.gradients.keys() == {"items", "w"}
    np.testing.assert_array_equal(both.gradients["items"].values, one.gradients["items"].values)


def test_one_optimizer_may_trace_while_another_is_told():
    def train_op(loss):
        return [
            SGD.minimize(loss, var_list=["w"]),
            ADAM.apply_gradients({"items": SparseGradient([2], np.ones((1, 4)))}),
        ]

    found = step(traced(linear, train_op)).gradients
    assert found["items"].ids.tolist() == [2]
    np.testing.assert_array_equal(found["w"], step(traced(linear)).gradients["w"])


def test_model_fn_is_called_once_for_several_optimizers():
    calls = []

    def loss_of(features):
        calls.append(1)
        return linear(features)

    train = training(
        traced(loss_of, lambda loss: [SGD.minimize(loss, var_list=["items"]), ADAM.minimize(loss, var_list=["w"])])
    )
    calls.clear()
    train(IDS, None, {"w": W}, 0, ArrayRows(items=ROWS))
    assert len(calls) == 1


def test_rows_that_were_asked_for_ahead_are_asked_for_by_the_same_ids():
    class Ahead(ArrayRows):
        def rows(self, spec, ids):
            assert ids is known.unique
            return super().rows(spec, ids)

    train, lookups = training(linear_by_hand), Lookups()
    spec = train._tables["items"]
    known = lookups.of(spec, IDS)
    train(IDS, None, {"w": W}, 0, Ahead(items=ROWS), lookups)
    assert lookups.of(spec, IDS) is known


@pytest.mark.parametrize(
    ("gradients", "error", "said"),
    [
        ({"items": np.ones((9, 4))}, ModelFnError, "table 'items' must be a SparseGradient.ids, values., got ndarray"),
        ({"w": SparseGradient([1], np.ones((1, 4)))}, ModelFnError, "'w' is a variable: its gradient must be an array"),
        ({"itmes": SparseGradient([1], W)}, ModelFnError, "the unknown variable 'itmes'; did you mean 'items'"),
        (
            {"items": SparseGradient([1, 2], np.ones((2, 5)))},
            ModelFnError,
            r"values of the gradient of table 'items' are float64\[2, 5\], expected float32\[2, 4\]: a row for each",
        ),
        ({"items": SparseGradient([1], [["a"] * 4])}, ModelFnError, r"are <U1\[1, 4\]|are str\d*\[1, 4\]"),
        ({"items": SparseGradient([1.5], np.ones((1, 4)))}, InputError, "table 'items': expected integer ids"),
        ({"items": SparseGradient([9], np.ones((1, 4)))}, InputError, r"table 'items' has ids in \[0, 9\), got 9"),
    ],
)
def test_refuses_gradients_that_cannot_be(gradients, error, said):
    def model_fn(features):
        embedding_lookup("items", features, 9, 4)
        get_variable("w", (4,))
        later = get_or_create_global_step()
        return EstimatorSpec(
            ModeKeys.TRAIN, loss=0.0, train_op=SGD.apply_gradients(gradients if later else {"w": W, "items": None})
        )

    with pytest.raises(error, match=said):
        step(model_fn, global_step=1)


def test_two_optimizers_may_not_train_one_table():
    def train_op(loss):
        return [SGD.minimize(loss, var_list=["items"]), ADAM.minimize(loss, var_list=["items", "w"])]

    with pytest.raises(ModelFnError, match="table 'items' is trained by two optimizers"):
        training(traced(linear, train_op))


def test_the_model_says_which_optimizer_trains_a_table():
    caller = ModelCaller(
        traced(linear, lambda loss: [SGD.minimize(loss, var_list=["w"]), ADAM.minimize(loss, var_list=["items"])]),
        {},
        None,
    )
    built = caller.build(IDS, None, ModeKeys.TRAIN, seed=1)
    [table] = built.model.tables
    assert (table.name, table.num_rows, table.dim, table.optimizer) == ("items", 9, 4, 1)
    assert built.table_features == {"items": ((),)}
    assert built.initial_values.keys() == {"w"}
