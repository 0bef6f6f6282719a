"""Replicas that share an input, and replicas each of which reads all of it."""

from __future__ import annotations

import json
import math

import pytest

from psflow.ps_runtime.server.input_position import InputPositions
from psflow.ps_runtime.server.instructions import Granted, Phase
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Consistency, Sync
from psflow.ps_runtime.specs.input import InputSpec, RecordRange

SHARED = InputSpec(4, batch_size=2, split_batches=1)
OWN = InputSpec(4, batch_size=2, split_batches=1, each_worker_reads_all=True)


def read(positions: InputPositions, replica: int, num_batches: int) -> list[RecordRange]:
    """Use up so many batches of a replica."""
    used = []
    for _ in range(num_batches):
        records = positions.of(replica).take(replica)
        assert records is not None
        positions.of(replica).commit(records)
        used.append(records)
    return used


def again(positions: InputPositions, spec: InputSpec, num_replicas: int) -> InputPositions:
    return InputPositions.restored(spec, num_replicas, json.loads(json.dumps(positions.to_facts())))


def test_each_replica_reads_every_record_once_an_epoch():
    positions = InputPositions(OWN, 2)
    assert read(positions, 0, 2) == [(0, 0, 2), (0, 2, 4)]
    assert positions.of(0).take(0) is None
    assert (positions.is_exhausted, positions.epochs_completed) == (False, 0)
    assert read(positions, 1, 2) == [(0, 0, 2), (0, 2, 4)]
    assert (positions.is_exhausted, positions.epochs_completed) == (True, 1)
    assert (positions.num_repeats, positions.num_misses) == (0, 0)


def test_replicas_that_share_it_have_one_queue():
    positions = InputPositions(SHARED, 2)
    assert [*read(positions, 0, 1), *read(positions, 1, 1)] == [(0, 0, 2), (0, 2, 4)]
    assert positions.is_exhausted


def test_what_only_a_replica_that_left_would_read_is_not_waited_for():
    positions = InputPositions(OWN, 2)
    read(positions, 0, 2)
    positions.left(1)
    assert positions.is_exhausted
    positions.came(1)
    assert not positions.is_exhausted


def test_shared_records_are_waited_for_whoever_left():
    positions = InputPositions(SHARED, 2)
    positions.left(0)
    assert not positions.is_exhausted


def test_each_replica_goes_on_where_it_was():
    positions = InputPositions(OWN, 2)
    read(positions, 0, 1)
    restored = again(positions, OWN, 2)
    assert (restored.of(0).take(0), restored.of(1).take(1)) == ((0, 2, 4), (0, 0, 2))


@pytest.mark.parametrize(("num_replicas", "firsts"), [(1, [(0, 2, 4)]), (3, [(0, 2, 4), (0, 2, 4), (0, 0, 2)])])
def test_a_replica_that_was_not_there_begins_at_the_start(num_replicas, firsts):
    positions = InputPositions(OWN, 2)
    read(positions, 0, 1)
    read(positions, 1, 1)
    restored = again(positions, OWN, num_replicas)
    assert [restored.of(replica).take(replica) for replica in range(num_replicas)] == firsts


@pytest.mark.parametrize(("before", "after"), [(OWN, SHARED), (SHARED, OWN)])
def test_an_input_that_was_shared_and_is_not_any_more_is_read_from_its_start(before, after):
    positions = InputPositions(before, 1)
    read(positions, 0, 1)
    assert again(positions, after, 1).of(0).take(0) == (0, 0, 2)


def test_another_training_reads_every_input_from_its_start():
    positions = InputPositions(OWN, 2)
    read(positions, 0, 2)
    read(positions, 1, 1)
    positions.restart()
    assert [positions.of(replica).take(replica) for replica in (0, 1)] == [(1, 0, 2), (1, 0, 2)]


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"positions": []},
        {"positions": 5, "each_worker_reads_all": True},
        {"positions": [], "each_worker_reads_all": True},
        {"positions": [{}], "each_worker_reads_all": 1},
        {"positions": [{}], "each_worker_reads_all": True},
    ],
)
def test_facts_that_are_none_are_refused(facts):
    with pytest.raises(ValueError, match="not the facts of an input position"):
        InputPositions.restored(OWN, 2, facts)


def started(spec: InputSpec, consistency: Consistency, num_replicas: int) -> Job:
    job = Job(spec, None, None, consistency=consistency, num_replicas=num_replicas)
    job.open()
    for replica in range(num_replicas):
        job.join(replica, 1)
    return job


def train(job: Job, replicas: range, ends: tuple[float, ...] = (math.inf, math.inf)) -> dict[int, list[RecordRange]]:
    """Let `replicas` push as long as they are given tickets; return what each has used.

    A stream ends for each replica after so many batches.
    """
    used: dict[int, list[RecordRange]] = {replica: [] for replica in replicas}
    sequences = dict.fromkeys(replicas, 0)
    for replica in replicas:
        job.ask(replica, 1)
    while granted := [told for told in job.due() if isinstance(told, Granted)]:
        for told in granted:
            if told.records.start >= ends[told.replica]:
                job.end_private_stream(told.replica, 1, told.records.start)
                job.ask(told.replica, 1)
                continue
            sequences[told.replica] += 1
            if job.push(told.replica, 1, sequences[told.replica], 2):
                used[told.replica].append(told.records)
    return used


@pytest.mark.parametrize("consistency", [Async(), BoundedStaleness(1), Sync(), Sync(1)])
def test_a_job_ends_when_each_replica_has_read_all(consistency):
    job = started(OWN, consistency, 2)
    assert train(job, range(2)) == {replica: [(0, 0, 2), (0, 2, 4)] for replica in (0, 1)}
    assert job.phase is Phase.SNAPSHOT_DUE
    assert job.statistics()["examples"] == 8


@pytest.mark.parametrize("consistency", [Async(), BoundedStaleness(1), Sync(), Sync(1)])
@pytest.mark.parametrize("ends", [(1, 4), (4, 1), (0, 3)])
def test_a_replica_with_more_to_read_trains_on_alone(consistency, ends):
    job = started(InputSpec(None, each_worker_reads_all=True), consistency, 2)
    used = train(job, range(2), ends)
    assert {replica: [records.start for records in read] for replica, read in used.items()} == {
        replica: list(range(end)) for replica, end in enumerate(ends)
    }
    assert job.phase is Phase.SNAPSHOT_DUE


def test_a_replica_that_is_lost_is_waited_for_and_one_that_left_is_not():
    job = started(OWN, Async(), 2)
    train(job, range(1))
    job.lost(1, 1)
    job.due()
    assert job.phase is Phase.TRAINING
    job.join(1, 2)
    job.left(1, 1)  # the good-bye of an earlier life
    job.due()
    assert job.phase is Phase.TRAINING
    job.left(1, 2)
    job.join(1, 3)  # it is there again before anybody has seen that it left
    job.due()
    assert job.phase is Phase.TRAINING
    job.left(1, 3)
    job.due()
    assert job.phase is Phase.SNAPSHOT_DUE


def test_the_end_of_a_stream_is_that_of_one_replica():
    job = started(InputSpec(None, each_worker_reads_all=True), Async(), 2)
    for replica in (0, 1):
        job.ask(replica, 1)
    assert [told.records.start for told in job.due() if isinstance(told, Granted)] == [0, 0]
    job.end_private_stream(0, 1, 0)
    assert (job.num_given, job.phase) == (1, Phase.TRAINING)
    job.end_private_stream(0, 1, 0)
    job.push(1, 1, 1, 2)
    job.due()
    job.end_private_stream(1, 1, 1)
    job.due()
    assert (job.num_given, job.global_step, job.phase) == (0, 1, Phase.SNAPSHOT_DUE)
