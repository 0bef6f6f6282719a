import importlib
from pathlib import Path

import pytest

from benchmarks import throughput
from benchmarks.__main__ import NAMES
from benchmarks.cases import Case
from benchmarks.peer import Peer
from benchmarks.rounds import Slice
from benchmarks.settings import Settings
from benchmarks.throughput import Contest, chosen, measure_contests
from benchmarks.workloads import Workload

WORKLOAD = Workload("dense", 10, 1.0, {"num_parameters": 5})
CASES = [Case.parse(key) for key in ("async/shm/1ps/2w", "async/tcp/1ps/2w")]
SYNC = Case.parse("sync/shm/1ps/2w")


def settings(**changes):
    return Settings(Path("out"), **changes)


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_says_what_it_claims_and_can_be_measured(name):
    bench = importlib.import_module(f"benchmarks.{name}")
    assert len(bench.CLAIM) > 100
    assert callable(bench.measure)


def test_cases_that_are_not_wanted_are_left_out():
    contests = [Contest(WORKLOAD, CASES), Contest(WORKLOAD, [SYNC], peer_is_local=True)]
    [only] = chosen(contests, settings(patterns=("*/tcp/*",)))
    assert only.cases == CASES[1:]
    assert chosen(contests, settings()) == contests
    assert chosen(contests, settings(patterns=("nonsense",))) == []
    assert chosen(contests, settings(quick=True)) == [Contest(WORKLOAD, CASES[:1])]


@pytest.fixture
def rates(monkeypatch):
    """Have systems run at given steps/s, by the beginning of their name; return the names of each start."""
    starts = []

    def rates(**by_name):
        def alternate(systems, num_rounds, measure):
            starts.append([system.name for system in systems])
            found = {s.name: next(r for name, r in by_name.items() if s.name.startswith(name)) for s in systems}
            return {name: [Slice(rate, 1 / rate)] * num_rounds for name, rate in found.items()}

        monkeypatch.setattr(throughput, "alternate", alternate)
        monkeypatch.setattr(throughput, "find_peer", lambda: Peer("python", "2.15.0"))
        return starts

    return rates


def test_each_case_stands_beside_limit_and_peer_of_its_contest(rates):
    starts = rates(psflow=300.0, limit=400.0, TensorFlow=100.0)
    rows = measure_contests([Contest(WORKLOAD, CASES)], settings(pairs=3, starts=2))
    assert [row.case for row in rows] == [case.key for case in CASES]
    assert [(row.ratio_limit.median, row.ratio_peer.median) for row in rows] == [(0.75, 3.0)] * 2
    names = ["TensorFlow async/shm/1ps/2w", "limit dense/2w", "psflow async/shm/1ps/2w", "psflow async/tcp/1ps/2w"]
    assert starts == [names, names]


def test_updates_of_several_gradients_count_as_gradients_beside_gradients(rates):
    rates(psflow=150.0, limit=400.0, TensorFlow=50.0)
    [row] = measure_contests([Contest(WORKLOAD, [SYNC])], settings(pairs=2))
    assert (row.psflow.median, row.limit.median, row.peer.median) == (300.0, 400.0, 100.0)
    assert row.cpu_secs_per_step["psflow"] == pytest.approx(1 / 300)


def test_the_peer_takes_no_part_where_it_is_to_be_quick(rates):
    starts = rates(psflow=300.0, limit=400.0)
    [row] = measure_contests([Contest(WORKLOAD, CASES)], settings(quick=True))
    assert row.peer is None
    assert starts == [["limit dense/2w", "psflow async/shm/1ps/2w"]]
