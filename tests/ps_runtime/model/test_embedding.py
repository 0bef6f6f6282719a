"""Lookups in sparse tables: shapes, combiners, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.model.calls.scope import BuildScope, CallScope, get_variable
from psflow.ps_runtime.model.embedding import embedding_lookup
from tests.ps_runtime.model.tables import ArrayRows, spec_of

ROWS = np.random.default_rng(8).normal(size=(9, 4)).astype(np.float32)
IDS = np.array([[3, 8, 3], [0, -1, 5], [-1, -1, -1], [7, -1, -1]])
WEIGHTS = np.array([[0.5, 2, 1], [3, 9, -1], [1, 1, 1], [0, 5, 5]])


@pytest.fixture
def first_call():
    with (scope := BuildScope(0, 1)):
        yield scope


@pytest.fixture
def source():
    with CallScope(0, {}, {}, {"items": spec_of("items", 9, 4)}, source := ArrayRows(items=ROWS)):
        yield source


def look_up(ids, **options):
    return embedding_lookup("items", np.asarray(ids), 9, 4, **options)


def joined_one_by_one(ids, weights, combiner):
    """Join rows as the definitions say it, in plain Python."""
    out = np.zeros((len(ids), 4))
    for bag, (of_ids, of_weights) in enumerate(zip(ids, weights, strict=True)):
        used = [(id_, weight) for id_, weight in zip(of_ids, of_weights, strict=True) if id_ >= 0]
        total = sum(weight * ROWS[id_].astype(float) for id_, weight in used)
        norms = {"sum": 1, "mean": sum(w for _, w in used), "sqrtn": math.sqrt(sum(w * w for _, w in used))}
        out[bag] = total / norms[combiner] if norms[combiner] else 0
    return out


def test_works_only_inside_a_model_fn():
    with pytest.raises(ModelFnError, match="embedding_lookup works only inside a model_fn"):
        look_up([1])


@pytest.mark.parametrize("ids", [5, [5, 3, 5], [[5, 3], [3, 8]], np.zeros((2, 0, 3), np.int64)])
def test_gives_a_row_for_each_id(source, ids):
    found = look_up(ids)
    assert found.shape == (*np.shape(ids), 4)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, ROWS[np.asarray(ids)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_takes_ids_of_each_integer_dtype(source, dtype):
    np.testing.assert_array_equal(look_up(np.array([8, 0], dtype)), ROWS[[8, 0]])


def test_asks_for_each_row_once(source):
    look_up([[5, 3], [3, 5]])
    assert source.asked == [("items", [3, 5])]


@pytest.mark.parametrize("weights", [None, WEIGHTS, WEIGHTS.astype(int)])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_combiners_do_as_they_are_defined(source, combiner, weights):
    found = look_up(IDS, combiner=combiner, weights=weights)
    given = np.ones(IDS.shape) if weights is None else weights
    np.testing.assert_allclose(found, joined_one_by_one(IDS, given, combiner), rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32
    assert not found[2].any()


def test_a_combiner_joins_over_the_last_axis(source):
    ids = np.array([[[1, 2], [3, -1]]])
    np.testing.assert_allclose(look_up(ids, combiner="sum"), [[ROWS[1] + ROWS[2], ROWS[3]]], rtol=1e-6)
    np.testing.assert_allclose(look_up([1, 2], combiner="mean"), (ROWS[1] + ROWS[2]) / 2, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (2, 3)])
def test_without_any_id_a_combiner_gives_zeros(source, shape):
    found = look_up(np.full(shape, -1), combiner="mean")
    assert found.shape == (shape[0], 4)
    assert not found.any()


def test_equal_weights_are_no_weights(source):
    ids = IDS[:2]
    np.testing.assert_allclose(
        look_up(ids, combiner="mean", weights=np.full(ids.shape, 7)), look_up(ids, combiner="mean"), rtol=1e-5
    )


# The first call


def test_the_first_call_gives_first_values_that_depend_on_seed_and_name():
    def found(name, seed, ids=(4, 2)):
        with BuildScope(0, seed):
            return embedding_lookup(name, np.array(ids), 10**9, 3)

    first = found("items", 1)
    np.testing.assert_array_equal(first, found("items", 1))
    np.testing.assert_array_equal(first[::-1], found("items", 1, (2, 4)))
    assert not np.array_equal(first, found("items", 2))
    assert not np.array_equal(first, found("users", 1))
    assert np.abs(first).max() < 0.05


@pytest.mark.parametrize(
    ("options", "config", "expected"),
    [
        ({"initializer": "zeros"}, {"name": "zeros"}, 0),
        ({"initializer": "constant", "scale": 3}, {"name": "constant", "value": 3}, 3),
        ({"initializer": "normal", "scale": 0.1}, {"name": "normal", "scale": 0.1}, None),
    ],
)
def test_initializers_by_name(first_call, options, config, expected):
    found = look_up([1, 2], **options)
    assert first_call.tables["items"].initializer == config
    assert expected is None or (found == expected).all()


def test_the_first_call_writes_the_table_down(first_call):
    look_up([1], dtype=np.float64, admit_after=3, expire_after_steps=np.int64(50))
    [spec] = first_call.tables.values()
    facts = (spec.num_rows, spec.dim, spec.dtype, spec.admit_after, spec.expire_after_steps, spec.optimizer)
    assert facts == (9, 4, "float64", 3, 50, None)
    assert 0 < spec.seed < 2**64


def test_lookups_in_one_table_share_it(first_call):
    look_up([1])
    look_up([[2, 3]], combiner="sum")
    assert list(first_call.tables) == ["items"]
    with pytest.raises(ModelFnError, match="requested table 'items' with dim 5, expected 4"):
        embedding_lookup("items", np.array([1]), 9, 5)


def test_features_that_were_looked_up_as_they_are_are_known_by_their_keys():
    features = {"user": np.array([1]), "basket": {"items": np.array([2]), "gifts": np.array([3])}, "x": np.ones(1)}
    with (scope := BuildScope(0, 1, features)):
        embedding_lookup("items", features["basket"]["items"], 9, 4)
        embedding_lookup("items", features["basket"]["gifts"], 9, 4)
        embedding_lookup("items", features["basket"]["items"], 9, 4)
        embedding_lookup("users", features["user"] + 1, 9, 4)
    assert scope.table_features == {"items": (("basket", "items"), ("basket", "gifts"))}
    with scope:
        embedding_lookup("items", features["user"] * 2, 9, 4)
    assert scope.table_features == {}
    ids = np.array([2])
    with (scope := BuildScope(0, 1, ids)):
        look_up(ids)
    assert scope.table_features == {"items": ((),)}


# Refusals


def test_a_later_call_refuses_a_new_table_and_other_facts(source):
    with pytest.raises(ModelFnError, match=r"in the new table 'item'; the first call .*did you mean 'items'"):
        embedding_lookup("item", np.array([1]), 9, 4)
    words = (
        r"'items' with num_rows 10, expected 9; initializer {'name': 'zeros'}, expected .*; admit_after 2, expected 1"
    )
    with pytest.raises(ModelFnError, match=words):
        embedding_lookup("items", np.array([1]), 10, 4, initializer="zeros", admit_after=2)


def test_a_name_is_a_variable_or_a_table(first_call, source):
    with pytest.raises(ModelFnError, match="'items' is a table, so no variable can have this name"):
        get_variable("items", (3,))
    with first_call:
        look_up([1])
        get_variable("w")
        with pytest.raises(ModelFnError, match="'items' is a table, so no variable can have this name"):
            get_variable("items", (9, 4))
        with pytest.raises(ModelFnError, match="'w' is a variable, so no table can have this name"):
            embedding_lookup("w", np.array([1]), 9, 4)


@pytest.mark.parametrize(
    ("ids", "options", "said"),
    [
        ([1.0, 2.0], {}, r"table 'items': expected integer ids, got float64\[2\]; cast them: ids.astype\(np.int64\)"),
        ([True], {}, r"expected integer ids, got bool\[1\]"),
        ([[1, 2], [9, 0]], {}, r"table 'items' has ids in \[0, 9\), got 9 at position 1, 0"),
        ([0, -2], {"combiner": "sum"}, r"has ids in \[0, 9\), got -2 at position 1"),
        ([[0, -1, 9]], {"combiner": "sum"}, r"has ids in \[0, 9\), got 9 at position 0, 2"),
        (
            [[0, 1], [2, -1]],
            {},
            r"the id at \[1, 1\] is -1\. -1 means 'no id' only if embedding_lookup has a combiner; without ",
        ),
        (np.array([2**64 - 1], np.uint64), {}, r"has ids in \[0, 9\), got 18446744073709551615 at position 0"),
    ],
)
def test_refuses_ids_that_cannot_be(source, ids, options, said):
    with pytest.raises(InputError, match=said):
        look_up(ids, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "a table needs a name, got ''"),
        ({"num_rows": 0}, "num_rows of table 'items' is 0, expected an integer >= 1"),
        ({"dim": 2.0}, "dim of table 'items' is 2.0, expected an integer >= 1"),
        ({"admit_after": True}, "admit_after of table 'items' is True, expected"),
        ({"expire_after_steps": -1}, "expire_after_steps of table 'items' is -1, expected"),
        ({"dtype": np.int32}, "the dtype of table 'items' is int32, expected a float dtype"),
        ({"dtype": np.longdouble}, "the dtype of table 'items' is float128, which no checkpoint can hold"),
        ({"initializer": "unifrom"}, "table 'items': unknown initializer 'unifrom', .*did you mean 'uniform'"),
        ({"scale": -1.0}, "table 'items': uniform: scale is -1.0, expected a finite number >= 0"),
        ({"scale": [0.1]}, r"table 'items': uniform: scale is \[0.1\], expected a finite number >= 0"),
        ({"initializer": ["zeros"]}, r"table 'items': unknown initializer \['zeros'\], expected one of"),
        ({"dim": np.array(4)}, r"dim of table 'items' is array\(4\), expected an integer >= 1"),
        ({"weights": [1]}, "the lookup in table 'items' has weights but no combiner"),
        ({"combiner": "men"}, "combiner of the lookup in table 'items' is 'men', expected .*did you mean 'mean'"),
        ({"combiner": "sum", "ids": 3}, "has a combiner but a single id; give ids of shape"),
        ({"combiner": "sum", "weights": [1, 2]}, r"weights .* are int64\[2\], expected numbers of .* its ids, \[1\]"),
        ({"combiner": "sum", "weights": ["a"]}, r"weights .* are <U1|str"),
    ],
)
def test_refuses_what_no_table_or_lookup_can_be(first_call, options, said):
    given = {"name": "items", "ids": [1], "num_rows": 9, "dim": 4} | options
    with pytest.raises(ModelFnError, match=said):
        embedding_lookup(**given)


def test_tells_all_faults_at_once(first_call):
    with pytest.raises(ModelFnError) as caught:
        embedding_lookup("items", [1], -1, 0, combiner="max", initializer="ones")
    assert len(caught.value.faults) == 4
