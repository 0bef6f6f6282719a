import json

import pytest

from benchmarks.quartiles import Spread
from benchmarks.rows import Row, Samples

MINE = Samples([100.0, 200.0, 300.0], [0.01, 0.02, 0.03])
TWICE_AS_SLOW = Samples([50.0, 100.0, 150.0], [0.02, 0.04, 0.06])


def test_a_ratio_is_that_of_pairs_and_not_of_medians():
    theirs = Samples([100.0, 100.0, 600.0])
    row = Row.of("a", "steps/s", MINE, peer=theirs)
    assert row.ratio_peer == Spread.of([1.0, 2.0, 0.5])


def test_what_slows_down_both_of_a_pair_does_not_show():
    assert Row.of("a", "steps/s", MINE, TWICE_AS_SLOW).ratio_limit == Spread(2.0, 2.0, 2.0)


def test_a_ratio_above_one_is_in_favour_of_psflow_also_where_less_is_better():
    row = Row.of("a", "s", TWICE_AS_SLOW, peer=MINE, less_is_better=True)
    assert row.ratio_peer == Spread(2.0, 2.0, 2.0)


def test_there_is_no_ratio_to_what_takes_no_measurable_time() -> None:
    row = Row.of("a", "s", Samples([0.0, 0.5]), Samples([0.1, 0.1]), less_is_better=True)
    assert (row.psflow.median, row.ratio_limit) == (0.25, None)


def test_pairs_that_are_none_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        Row.of("a", "steps/s", MINE, Samples([1.0]))


def test_several_gradients_a_step_share_its_cpu():
    scaled = MINE.scaled(2)
    assert (list(scaled.values), list(scaled.cpu_secs_per_step)) == ([200.0, 400.0, 600.0], [0.005, 0.01, 0.015])


def test_a_row_in_json_has_medians_quartiles_and_cpu():
    facts = Row.of("async/shm/1ps/2w", "steps/s", MINE, TWICE_AS_SLOW).to_facts()
    assert json.loads(json.dumps(facts)) == {
        "case": "async/shm/1ps/2w",
        "unit": "steps/s",
        "psflow": 200.0,
        "limit": 100.0,
        "peer": None,
        "ratio_limit": 2.0,
        "ratio_peer": None,
        "quartiles": {
            "psflow": [150.0, 250.0],
            "limit": [75.0, 125.0],
            "peer": None,
            "ratio_limit": [2.0, 2.0],
            "ratio_peer": None,
        },
        "cpu_secs_per_step": {"psflow": 0.02, "limit": 0.04, "peer": None},
    }


def test_numbers_are_given_as_precisely_as_they_are_known():
    assert Row.of("a", "steps/s", Samples([1234.56789])).to_facts()["psflow"] == 1234.6
