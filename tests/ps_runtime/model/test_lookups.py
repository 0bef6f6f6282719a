"""The lookups of a batch."""

import numpy as np
import pytest

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.lookups import Lookup, Lookups
from tests.ps_runtime.model.tables import spec_of

ITEMS = spec_of("items", 100, 4)


@pytest.mark.parametrize("ids", [[7, 3, 7], [[5, -1], [-1, 5]], [-1, -1], [], 3])
def test_ids_come_back_from_what_a_lookup_knows(ids):
    given = np.array(ids, np.int64)
    lookup = Lookup.of(ITEMS, given)
    assert lookup.unique.tolist() == sorted(set(given[given >= 0].tolist()))
    present = np.ones(given.size, bool) if lookup.present is None else lookup.present
    assert present.tolist() == (given.ravel() >= 0).tolist()
    assert lookup.unique[lookup.found.inverse()[present]].tolist() == given.ravel()[present].tolist()


def test_one_array_is_searched_once():
    lookups, ids = Lookups(), np.array([7, 3, 7], np.int32)
    assert lookups.of(ITEMS, ids) is lookups.of(ITEMS, ids)
    assert lookups.of(ITEMS, ids) is lookups.of(spec_of("other", 8, 1), ids)
    assert lookups.of(ITEMS, ids) is not lookups.of(ITEMS, ids.copy())


def test_an_array_that_was_written_to_is_searched_again():
    lookups, ids = Lookups(), np.array([7, 3, 7])
    lookups.of(ITEMS, ids)
    ids[0] = 9
    assert lookups.of(ITEMS, ids).unique.tolist() == [3, 7, 9]


def test_arrays_that_are_gone_are_not_mistaken_for_others():
    lookups = Lookups()
    for number in range(50):
        assert lookups.of(ITEMS, np.full(3, number)).unique.tolist() == [number]


@pytest.mark.parametrize("wrong", [-2, 100, 2**62])
def test_an_id_that_is_none_is_found_among_absent_ones(wrong):
    with pytest.raises(InputError, match=rf"table 'items' has ids in \[0, 100\), got {wrong} at position 1, 0"):
        Lookups().of(ITEMS, np.array([[5, -1], [wrong, 7]]))


def test_known_ids_are_judged_for_each_table():
    lookups, ids = Lookups(), np.array([7, 3, 7])
    lookups.of(ITEMS, ids)
    with pytest.raises(InputError, match=r"table 'small' has ids in \[0, 5\), got 7 at position 0"):
        lookups.of(spec_of("small", 5, 4), ids)
