import contextlib
import math

import pytest

from benchmarks import scaling_costs
from benchmarks.scaling_costs import CHUNK_STEPS, TRANSPORTS, WARM_STEPS, CostBench, PsPair, Rounds, Spent, way_costs
from benchmarks.scaling_jobs import LocalJob
from benchmarks.workloads import Workload
from psflow.ps_runtime.server.handler import PsHandler
from tests.tasks.waiting import wait_until

US = 1e-6


def rounds(nbytes, pull_messages):
    """Return what is spent if a message costs a replica 5 us and a ps 3, and a byte 1 ns to move and 2 ns to apply."""
    pull = Spent(0.0, 5 * US * pull_messages + 2e-9 * nbytes, 3 * US, 3 * US)
    push = Spent(0.0, 10 * US + 2e-9 * nbytes, 4 * US + 2e-9 * nbytes, 3 * US + 2e-9 * nbytes)
    return Rounds(pull, Spent(*(a + b for a, b in zip(pull, push, strict=True))))


@pytest.mark.parametrize("pull_messages", [1, 2])
def test_costs_are_those_of_one_ps_and_one_byte(pull_messages):
    small, large = ((nbytes, rounds(nbytes, pull_messages)) for nbytes in (1000, 100_000))
    way = way_costs(small, large, pull_messages)
    found = {name: getattr(way, name) for name in way.__dataclass_fields__}
    assert {name: line.fixed_secs for name, line in found.items()} == pytest.approx(
        {"replica_pull": 5 * US, "replica_push": 5 * US, "ps_pull": 3 * US, "ps_push": 3 * US, "ps_0_push": 4 * US}
    )
    assert {name: line.secs_per_byte for name, line in found.items()} == pytest.approx(
        {"replica_pull": 1e-9, "replica_push": 1e-9, "ps_pull": 0, "ps_push": 2e-9, "ps_0_push": 2e-9}, abs=1e-15
    )


def test_replicas_in_this_process_pull_and_push(monkeypatch):
    kinds = []
    handle = PsHandler.handle

    def noted(self, peer, message):
        kinds.append((self.shard.layout.index, message.kind.name))
        return handle(self, peer, message)

    with LocalJob(1024, num_ps=2, num_replicas=3) as job:
        monkeypatch.setattr(PsHandler, "handle", noted)
        job.pushers.step()
        assert all(secs > 0 for secs in job.handler_secs)
    assert kinds == 3 * [(0, "PULL"), (1, "PULL")] + 3 * [(1, "PUSH"), (0, "PUSH")]


def measured(pair, transport):
    """Return what two replicas spend, whose step is one push of each to each shard."""
    pushers = pair._pushers[transport]
    versions = pushers.pull()[0]
    pushers.step()
    stepped = tuple(version + 2 for version in versions)
    wait_until(lambda: pushers.pull() == [stepped, stepped])  # that of the other may come after this pull
    rounds = pair.spend(transport, secs=0.001)
    wait_until(lambda: min(pushers.pull()[0]) >= stepped[0] + 2 * (WARM_STEPS + CHUNK_STEPS))
    return rounds


@pytest.mark.process
def test_two_ps_in_processes_serve_a_replica_by_each_transport():
    with contextlib.closing(PsPair(16384, num_replicas=2)) as pair:
        pair.connect()
        assert len(set(pair.pids)) == 2
        for transport in TRANSPORTS:
            pull, step = measured(pair, transport)
            assert all(0 < secs < math.inf for secs in (*step, pull.wall_secs, pull.replica_secs, pull.ps_secs))


def test_costs_come_from_all_parts(monkeypatch):
    class Pair:
        pids = (1, 2)

        def __init__(self, shard_nbytes, num_replicas):
            self.nbytes = shard_nbytes

        def connect(self):
            pass

        def spend(self, transport, secs):
            return rounds(self.nbytes, 1 if transport == "shm" else 2)

    monkeypatch.setattr(scaling_costs, "PsPair", Pair)
    monkeypatch.setattr(scaling_costs, "LOCAL_STEPS", 60)
    monkeypatch.setattr(scaling_costs, "MANY_REPLICAS", 4)
    bench = CostBench(Workload("mlp", 50, 1.0), large_bytes=65536, loop_secs=0.001)
    bench.start()
    costs = bench.costs()
    assert 0 < costs.compute_secs < math.inf
    for way in costs.ways.values():
        assert way.replica_pull.fixed_secs == pytest.approx(5 * US)
    assert (0 <= costs.log_0_secs < math.inf, 0 <= costs.log_secs < math.inf) == (True, True)
    assert costs.wake_secs == 0
    assert bench.roles == {"16384-0": 1, "16384-1": 2, "65536-0": 1, "65536-1": 2}
