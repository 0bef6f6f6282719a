"""A table creates, admits, expires, copies and hands over its rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.optimizers import Adagrad, GradientDescent, Momentum
from psflow.ps_runtime.tables.initial_rows import initial_rows
from tests.ps_runtime.tables.conftest import DictTable, Shards, spec_of

SGD = GradientDescent(learning_rate=1.0)


def ids_of(*numbers):
    return np.array(numbers, np.int64)


def ones(count, spec):
    return np.ones((count, spec.dim), spec.dtype)


@given(
    num_rows=st.integers(1, 9),
    dim=st.integers(1, 3),
    num_shards=st.integers(1, 4),
    admit_after=st.integers(1, 3),
    data=st.data(),
)
def test_small_tables_are_as_a_dict_of_rows(num_rows, dim, num_shards, admit_after, data):
    spec = spec_of(num_rows=num_rows, dim=dim, admit_after=admit_after, expire_after_steps=2)
    rule = Momentum(learning_rate=0.5)
    table, expected = Shards(spec, rule, num_shards), DictTable(spec, rule)
    ids = st.lists(st.integers(0, num_rows - 1), max_size=6).map(lambda some: ids_of(*some))
    for num_updates in range(1, data.draw(st.integers(1, 6)) + 1):
        pushed = np.unique(data.draw(ids))
        gradients = np.arange(len(pushed) * dim, dtype=np.float32).reshape(-1, dim) - 1.0
        table.push(pushed, gradients, 0.5, num_updates)
        expected.push(pushed, gradients, 0.5, num_updates)
        if data.draw(st.booleans()):
            assert table.expire(num_updates) == expected.expire(num_updates)
        if data.draw(st.booleans()):
            table = table.copy()
        if data.draw(st.booleans()):
            table = table.on(data.draw(st.integers(1, 4)))
        pulled = data.draw(ids)
        np.testing.assert_array_equal(table.pull(pulled), expected.pull(pulled))
        assert table.num_created == len(expected.rows)


def test_a_pull_creates_nothing(make_spec, make_shards):
    spec = make_spec()
    table = make_shards(spec, SGD)
    ids = ids_of(96, 0, 0)
    np.testing.assert_array_equal(table.pull(ids), initial_rows(spec, ids))
    assert table.num_created == 0
    assert len(table.tables[0].tensors()["ids"]) == 0


def test_a_created_row_may_be_zero(make_spec, make_shards):
    spec = make_spec()
    table = make_shards(spec, SGD)
    ids = ids_of(3, 4)
    table.push(ids, initial_rows(spec, ids), 1.0, 1)
    np.testing.assert_array_equal(table.pull(ids_of(3, 5, 4)), [[0.0] * 3, initial_rows(spec, ids_of(5))[0], [0.0] * 3])


def test_a_push_of_no_rows_changes_nothing(make_spec, make_shards):
    table = make_shards(make_spec(), SGD)
    table.push(ids_of(), np.empty((0, 3), np.float32), 1.0, 1)
    assert table.num_created == 0
    assert table.pull(ids_of()).shape == (0, 3)


def test_the_push_that_admits_a_row_is_applied_and_those_before_are_not(make_spec, make_shards):
    spec = make_spec(admit_after=3)
    table, ids = make_shards(spec, SGD), ids_of(7)
    first = initial_rows(spec, ids)
    for count in (1, 2):
        table.push(ids, ones(1, spec), 1.0, count)
        np.testing.assert_array_equal(table.pull(ids), first)
        assert table.num_created == 0
    table.push(ids, ones(1, spec), 1.0, 3)
    np.testing.assert_array_equal(table.pull(ids), first - 1.0)
    assert table.num_created == 1


@pytest.mark.parametrize("enough", [255, 256, 70_000])
def test_admission_counts_as_far_as_it_must(make_spec, make_shards, enough):
    spec = make_spec(admit_after=enough)
    tensors = {
        "ids": ids_of(),
        "weights": np.empty((0, 3), np.float32),
        "candidate_ids": ids_of(9),
        "candidate_pushes": ids_of(enough - 2),
    }
    table = make_shards(spec, SGD)
    table.tables[0].load(tensors)
    for count, created in ((1, 0), (2, 1), (3, 1)):
        table.push(ids_of(9), ones(1, spec), 1.0, count)
        assert table.num_created == created


def test_a_row_expires_when_so_many_updates_have_not_touched_it(make_spec, make_shards):
    spec = make_spec(expire_after_steps=3)
    rule = Adagrad(learning_rate=1.0)
    table, ids = make_shards(spec, rule), ids_of(7, 8)
    table.push(ids, ones(2, spec), 1.0, 10)
    table.push(ids[:1], ones(1, spec), 1.0, 12)
    assert table.expire(12) == 0
    assert table.expire(13) == 1
    np.testing.assert_array_equal(table.pull(ids[1:]), initial_rows(spec, ids[1:]))
    assert table.expire(14) == 0
    assert table.expire(15) == 1
    again, fresh = make_shards(spec, rule), make_shards(spec, rule)
    fresh.push(ids, ones(2, spec), 1.0, 1)
    table.push(ids, ones(2, spec), 1.0, 16)
    np.testing.assert_array_equal(table.pull(ids), fresh.pull(ids), "slots begin anew")
    assert again.num_created == 0


def test_pushes_for_admission_expire_too(make_spec, make_shards):
    spec = make_spec(admit_after=2, expire_after_steps=3)
    table, ids = make_shards(spec, SGD), ids_of(7)
    table.push(ids, ones(1, spec), 1.0, 1)
    assert table.expire(4) == 0
    table.push(ids, ones(1, spec), 1.0, 5)
    assert table.num_created == 0
    table.push(ids, ones(1, spec), 1.0, 6)
    assert table.num_created == 1


def test_without_a_limit_nothing_expires(make_spec, make_shards):
    table = make_shards(make_spec(), SGD)
    table.push(ids_of(1), ones(1, table.spec), 1.0, 1)
    assert table.expire(10**9) == 0
    assert table.num_created == 1


def test_a_copy_stays_as_it_is_while_the_table_moves_on(make_spec, make_shards):
    spec = make_spec()
    table = make_shards(spec, SGD, 2)
    table.push(ids_of(1, 2), ones(2, spec), 1.0, 1)
    copy, before = table.copy(), table.pull(ids_of(1, 2, 3))
    table.push(ids_of(2, 3), ones(2, spec), 1.0, 2)
    np.testing.assert_array_equal(copy.pull(ids_of(1, 2, 3)), before)
    table.copy(into=copy)
    np.testing.assert_array_equal(copy.pull(ids_of(1, 2, 3)), table.pull(ids_of(1, 2, 3)))


@pytest.mark.parametrize("num_rows", [3, 40_000])
def test_a_copy_forgets_the_rows_that_it_had_before(make_spec, make_shards, num_rows):
    spec = make_spec(num_rows=100_000, dim=16)
    table, other = (make_shards(spec, Adagrad(learning_rate=1.0)) for _ in range(2))
    mine, theirs = np.arange(0, 2 * num_rows, 2), np.arange(70_000, 70_000 + num_rows // 2)
    table.push(mine, ones(num_rows, spec), 1.0, 1)
    other.push(theirs, ones(len(theirs), spec), 1.0, 1)
    table.copy(into=other)
    for name, values in table.tables[0].tensors().items():
        np.testing.assert_array_equal(other.tables[0].tensors()[name], values)
    np.testing.assert_array_equal(other.pull(theirs), table.pull(theirs))


def test_a_cleared_table_is_as_a_new_one(make_spec, make_shards, rule):
    spec = make_spec(admit_after=2, expire_after_steps=5)
    table, new = make_shards(spec, rule), make_shards(spec, rule)
    for count in (1, 2, 3):
        table.push(np.arange(count, 20 * count), ones(19 * count, spec), 0.1, count)
    table.tables[0].clear()
    assert table.num_created == 0
    for count in (1, 2):
        for some in (table, new):
            some.push(np.arange(50), ones(50, spec), 0.1, count)
    for name, values in new.tables[0].tensors().items():
        np.testing.assert_array_equal(table.tables[0].tensors()[name], values)


def test_tensors_hold_the_created_rows_ascending_and_nothing_else(make_spec, make_shards):
    spec = make_spec(admit_after=2, expire_after_steps=9)
    table = make_shards(spec, Adagrad(learning_rate=1.0, initial_accumulator_value=0.5), 3)
    table.push(ids_of(50, 2, 5), ones(3, spec), 1.0, 1)
    table.push(ids_of(2, 50), ones(2, spec), 1.0, 4)
    tensors = table.tables[2].tensors()
    assert {name: a.tolist() for name, a in tensors.items() if name != "weights"} == {
        "ids": [2, 50],
        "accumulator": [[1.5] * 3] * 2,
        "last_push": [4, 4],
        "candidate_ids": [5],
        "candidate_pushes": [1],
        "candidate_last_push": [1],
    }
    assert tensors["weights"].dtype == np.float32
    assert all(a.flags.c_contiguous and a.flags.owndata for a in tensors.values())
    assert "candidate_ids" not in make_shards(make_spec(), SGD).tables[0].tensors()
    assert "last_push" not in make_shards(make_spec(), SGD).tables[0].tensors()


def test_who_reads_only_needs_no_slots(make_spec, make_shards):
    spec = make_spec()
    table, reader = make_shards(spec, Adagrad(learning_rate=1.0), 2), make_shards(spec, None)
    table.push(ids_of(1, 2), ones(2, spec), 1.0, 1)
    for shard in table.tables:
        reader.tables[0].load(shard.tensors())
    np.testing.assert_array_equal(reader.pull(np.arange(97)), table.pull(np.arange(97)))
    assert reader.num_created == 2


def test_ids_of_others_are_refused_before_anything_changes(make_spec, make_shards):
    table = make_shards(make_spec(), SGD, 2).tables[1]
    with pytest.raises(InputError, match="table 'items' has ids in"):
        table.push(ids_of(1, 97), ones(2, table.spec), learning_rate=1.0, num_updates=1)
    out = np.full((2, 3), 9.0, np.float32)
    with pytest.raises(InputError, match="id 2 at position 1 lies on shard 0 of 2, but was sent to shard 1"):
        table.pull(ids_of(1, 2), out)
    with pytest.raises(InputError, match="got -1 at position 0"):
        table.load({"ids": ids_of(-1), "weights": ones(1, table.spec)})
    assert table.num_created == 0
    assert (out == 9.0).all()


def test_a_shard_without_rows_is_a_table_too(make_spec, make_shards):
    table = make_shards(make_spec(num_rows=2), SGD, 3)
    table.push(ids_of(0, 1), ones(2, table.spec), 1.0, 1)
    assert [shard.num_created for shard in table.tables] == [1, 1, 0]
    assert table.tables[2].expire(5) == 0
    assert table.copy().on(1).num_created == 2
