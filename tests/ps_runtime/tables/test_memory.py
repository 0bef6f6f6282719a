"""Untouched rows take no memory."""

import os
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.optimizers import Adagrad, Ftrl
from psflow.ps_runtime.tables import table_rows
from psflow.ps_runtime.tables.table import Table
from psflow.ps_runtime.tables.table_rows import lazy_zeros

MB = 1 << 20


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def small_pages(num_rows, row_nbytes):
    return lazy_zeros(num_rows * row_nbytes)


@pytest.fixture
def grown():
    """Return by how many bytes this process has grown since the test began."""
    before = resident_nbytes()
    return lambda: resident_nbytes() - before


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for resident memory")
def test_a_table_of_a_hundred_million_rows_costs_what_is_touched(make_spec, grown):
    spec = make_spec(num_rows=100_000_000, dim=16, expire_after_steps=10)
    table, copy = (Table(spec, Adagrad(learning_rate=0.1)) for _ in range(2))
    assert grown() < 4 * MB
    ids = np.random.default_rng(0).integers(0, spec.num_rows, 500)
    out = np.empty((500, 16), np.float32)
    table.pull(ids, out)
    assert grown() < 4 * MB
    ids = np.unique(ids)
    table.push(ids, out[: len(ids)], learning_rate=0.1, num_updates=1)
    # of each row a page of weights and slot, one of counts and one of last pushes
    assert grown() < 500 * 3 * 4096 + 4 * MB
    table.copy_into(copy)
    assert copy.num_created == len(ids)
    assert grown() < 2 * 500 * 3 * 4096 + 8 * MB


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for resident memory")
@pytest.mark.parametrize(("dim", "rule"), [(1, Ftrl(learning_rate=0.1)), (8, Adagrad(learning_rate=0.1))])
def test_ten_million_hashed_ids_cost_what_is_touched_though_the_table_is_small(make_spec, grown, dim, rule):
    table = Table(make_spec(num_rows=10_000_000, dim=dim), rule)
    ids = np.unique(np.random.default_rng(0).integers(0, table.spec.num_rows, 500))
    table.push(ids, np.ones((len(ids), dim), np.float32), learning_rate=0.1, num_updates=1)
    # of each row a page of weights and slots, and one of counts; in huge pages it would be all of 120 or 640 MB
    assert grown() < 500 * 2 * 4096 + 4 * MB


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux for resident memory")
@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize(("dim", "rule"), [(16, Adagrad(learning_rate=0.1)), (1, Ftrl(learning_rate=0.1))])
def test_a_prepared_copy_is_backed_before_it_is_made(make_spec, grown, is_prepared, dim, rule):
    spec = make_spec(num_rows=1_000_000, dim=dim, expire_after_steps=10)
    table, copy = (Table(spec, rule, allocate=small_pages) for _ in range(2))
    if is_prepared:
        table.prepare_copies(copy)
    # the second push names rows on pages that the first one has seen, and on others
    for step in (1, 2):
        ids = np.unique(np.random.default_rng(step).integers(0, spec.num_rows, 1_000))
        table.push(ids, np.ones((len(ids), dim), np.float32), learning_rate=0.1, num_updates=step)
    before = grown()
    table.copy_into(copy)
    assert (grown() - before < MB) == is_prepared


def test_preparing_leaves_the_rows_of_a_copy_alone(make_spec, make_shards):
    spec = make_spec(expire_after_steps=1)
    table = make_shards(spec, Adagrad(learning_rate=0.1))
    ids, gradients = np.array([3, 9]), np.ones((2, 3), np.float32)
    table.push(ids, gradients, 0.1, 1)
    copy = table.copy()
    table.tables[0].prepare_copies(copy.tables[0])
    before = {name: a.copy() for name, a in copy.tables[0].tensors().items()}
    table.expire(5)
    table.push(np.array([3, 9, 11]), np.ones((3, 3), np.float32), 0.1, 6)
    for name, values in copy.tables[0].tensors().items():
        np.testing.assert_array_equal(values, before[name])


def test_rows_begin_at_a_cache_line(make_spec):
    given = []

    def allocate(num_rows, row_nbytes):
        given.append(small_pages(num_rows, row_nbytes))
        return given[-1]

    table = Table(make_spec(num_rows=100, dim=16), Adagrad(learning_rate=0.1), 1, 3, allocate=allocate)
    ids = np.array([1, 4, 97])
    table.push(ids, np.ones((3, 16), np.float32), learning_rate=0.1, num_updates=1)
    (rows,) = given
    assert rows.ctypes.data % 64 == 0
    assert rows.nbytes == 2 * 33 * 16 * 4
    out = np.empty((3, 16), np.float32)
    table.pull(ids, out)
    weights, accumulator = rows.view(np.float32).reshape(33, 2, 16).swapaxes(0, 1)
    np.testing.assert_array_equal(weights[[0, 1, 32]], out)
    np.testing.assert_array_equal(accumulator[[0, 1, 32]], np.full((3, 16), 1.1, np.float32))


@pytest.mark.skipif(not table_rows._NO_RESERVE, reason="this platform has no MAP_NORESERVE")
def test_memory_may_be_larger_than_the_machine():
    assert lazy_zeros(1 << 40)[-1] == 0
