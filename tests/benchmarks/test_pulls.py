import math

import numpy as np

from benchmarks.pulls import measure_pulls, pull_and_take
from benchmarks.settings import Settings


def test_both_give_the_same_rows():
    pull, take = pull_and_take(50, 200)
    assert np.array_equal(pull(), take())
    assert pull().min() >= 1.0


def test_rows_are_of_the_sizes_that_are_wanted(tmp_path):
    [row] = measure_pulls(Settings(tmp_path, pairs=2, patterns=("pull/1e5",)))
    facts = row.to_facts()
    assert (facts["case"], facts["unit"], facts["peer"]) == ("pull/1e5", "pulls/s", None)
    assert 0 < facts["ratio_limit"] < math.inf
