"""Errors for ids outside a table, or of another shard, name their position."""

import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tables.bounds import check_ids, places_of


def test_ids_from_first_to_last_are_accepted():
    check_ids("items", np.array([[0, 6], [3, 3]]), 7)
    check_ids("items", np.empty(0, np.int64), 7)
    check_ids("items", np.array([2**62]), 2**62 + 1)


@pytest.mark.parametrize("strange", [-1, 7, 2**62, -(2**63)])
def test_an_id_outside_is_named(strange):
    with pytest.raises(InputError, match=rf"^table 'items' has ids in \[0, 7\), got {strange} at position 2$"):
        check_ids("items", np.array([0, 6, strange, -9]), 7)


def test_the_place_in_an_array_of_any_shape_is_reported():
    with pytest.raises(InputError, match=r"got 7 at position 1, 0$"):
        check_ids("items", np.array([[0, 1], [7, 2]], np.int32), 7)


@pytest.mark.parametrize("num_shards", [1, 2, 3, 7])
def test_places_count_the_rows_of_each_shard(num_shards):
    for shard in range(num_shards):
        ids = np.arange(shard, 50, num_shards)
        assert places_of("items", ids, 50, shard, num_shards).tolist() == list(range(len(ids)))


def test_an_id_of_another_shard_is_named():
    words = r"^table 'items': id 5 at position 1 lies on shard 2 of 3, but was sent to shard 1$"
    with pytest.raises(InputError, match=words):
        places_of("items", np.array([4, 5, 6]), 7, 1, 3)
    with pytest.raises(InputError, match="got -1 at position 0"):
        places_of("items", np.array([-1]), 7, 2, 3)
