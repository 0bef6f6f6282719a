"""Rows that nobody touched cost nothing."""

import os
from pathlib import Path

import numpy as np
import pytest

from ps_runtime.optimizers import Adagrad
from ps_runtime.tables import memory
from ps_runtime.tables.memory import lazy_zeros
from ps_runtime.tables.table import Table

MB = 1 << 20


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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
    # of each row a page of weights, one of the slot, one of counts and one of last pushes
    assert grown() < 500 * 4 * 4096 + 4 * MB
    table.copy_into(copy)
    assert copy.num_created == len(ids)
    assert grown() < 500 * 64 * 4096


def test_rows_begin_at_a_cache_line(make_spec):
    given = []

    def allocate(nbytes):
        given.append(lazy_zeros(nbytes))
        return given[-1]

    table = Table(make_spec(num_rows=100, dim=16), Adagrad(learning_rate=0.1), 1, 3, allocate=allocate)
    ids = np.array([1, 4, 97])
    table.push(ids, np.ones((3, 16), np.float32), learning_rate=0.1, num_updates=1)
    (rows,) = given
    assert rows.ctypes.data % 64 == 0
    assert rows.nbytes == 2 * 33 * 16 * 4
    out = np.empty((3, 16), np.float32)
    table.pull(ids, out)
    weights, accumulator = rows.view(np.float32).reshape(2, 33, 16)
    np.testing.assert_array_equal(weights[[0, 1, 32]], out)
    np.testing.assert_array_equal(accumulator[[0, 1, 32]], np.full((3, 16), 1.1, np.float32))


@pytest.mark.skipif(not memory._NO_RESERVE, reason="nobody says how to ask for it here")
def test_memory_may_be_larger_than_the_machine():
    assert lazy_zeros(1 << 40)[-1] == 0
