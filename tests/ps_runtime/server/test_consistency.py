"""Which push becomes which update, told by plain events: no ps, no clock."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from psflow.ps_runtime.protocol.job_state import Decision
from psflow.ps_runtime.server.instructions import Decided, Granted, JobFinished, NoTicket, SnapshotReady
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Sync
from psflow.ps_runtime.specs.input import InputSpec


class Office:
    """A job and its replicas, who pull when they get a ticket and push when they are told to."""

    def __init__(self, consistency, num_replicas=2, num_records=None, max_steps=None, save_steps=None):
        spec = InputSpec(num_records or 1000, num_epochs=None if num_records is None else 1, split_batches=1)
        self.job = Job(spec, max_steps, save_steps, consistency=consistency, num_replicas=num_replicas)
        self.tickets = {replica: [] for replica in range(num_replicas)}
        self.sequences = Counter()
        self.decisions = []
        self.finished = set()
        self.awaiting = set()
        self.snapshot = None
        self.job.open()
        for replica in self.tickets:
            self.job.join(replica, 0)

    def come(self, *replicas):
        self.awaiting.update(replicas or self.tickets)
        for replica in replicas or self.tickets:
            self.job.ask(replica, 0, len(self.tickets[replica]))
        return self.hear()

    def push(self, *replicas, version=None):
        """Push on the oldest ticket of each; return who got a ticket since."""
        got = []
        for replica in replicas:
            self.awaiting.add(replica)
            step = self.tickets[replica].pop(0)
            self.sequences[replica] += 1
            known = len(self.tickets[replica])
            self.job.push(replica, 0, self.sequences[replica], 1, step if version is None else version, known)
            got += self.hear()
        return got

    def hear(self):
        got = []
        for instruction in self.job.due(saver_waits=True):
            match instruction:
                case Decided(_, entries):
                    self.decisions += entries
                case Granted(replica, step):
                    self.tickets[replica].append(step)
                    self.awaiting.discard(replica)
                    got.append(replica)
                case NoTicket(replica):
                    got.append(-1 - replica)
                    self.awaiting.discard(replica)
                case JobFinished(replica):
                    self.finished.add(replica)
                case SnapshotReady(snapshot, is_final):
                    self.snapshot = (snapshot.step, is_final)
        return got

    @property
    def words(self):
        return " ".join(
            f"{e.decision.name}{e.replica if e.decision is not Decision.CLOSE else e.sequence}" for e in self.decisions
        )


def test_async_applies_each_push_at_once_and_counts_its_staleness():
    office = Office(Async())
    assert office.come() == [0, 1]
    assert office.push(0, 0, 1) == [0, 0, 1]
    assert office.words == "APPLY0 APPLY0 APPLY1"
    assert office.job.global_step == 3
    facts = office.job.statistics()
    assert (facts["pushes"], facts["max_staleness"], facts["mean_staleness"]) == (3, 2, round(2 / 3, 4))


def test_sync_makes_one_update_of_a_gradient_of_each():
    office = Office(Sync())
    office.come()
    assert office.push(0) == []
    assert office.job.global_step == 0
    assert sorted(office.push(1)) == [0, 1]
    assert office.words == "SUM0 SUM1 CLOSE2"
    assert office.job.global_step == 1


def test_sync_waits_for_those_who_have_not_come_yet():
    office = Office(Sync())
    assert office.come(0) == [0]
    assert office.push(0) == []
    assert office.come(1) == [1]
    assert sorted(office.push(1)) == [0, 1]


def test_backup_workers_are_too_late_and_their_records_are_read_again():
    office = Office(Sync(replicas_to_aggregate=2), num_replicas=3, num_records=6)
    office.come()
    assert sorted(office.push(0, 1)) == [0, 1]
    assert office.push(2) == [2]
    assert office.words == "SUM0 SUM1 CLOSE2 DROP2"
    while not office.snapshot:
        for replica in range(3):
            if office.tickets[replica]:
                office.push(replica)
    assert office.snapshot == (office.job.global_step, True)
    facts = office.job.statistics()
    assert (facts["examples"], facts["pushes"], facts["dropped_pushes"] >= 1) == (6, 6, True)


def test_fewer_replicas_than_gradients_give_several_each():
    office = Office(Sync(replicas_to_aggregate=3), num_replicas=2)
    office.come()
    assert office.push(0) == [0]
    assert office.push(0) == []
    assert sorted(office.push(1)) == [0, 1]
    assert office.words == "SUM0 SUM0 SUM1 CLOSE3"


def test_sync_shrinks_to_the_living_and_grows_again():
    office = Office(Sync(), num_replicas=3)
    office.come()
    office.push(0, 1)
    office.job.lost(2, 0)
    assert sorted(office.hear()) == [0, 1]
    assert office.words == "SUM0 SUM1 CLOSE2"
    office.job.join(2, 1)
    office.push(0, 1)
    assert office.job.global_step == 1
    office.job.ask(2, 1)
    assert office.hear() == [2]
    office.job.push(2, 1, 1, 1)
    office.hear()
    assert office.job.global_step == 2


def test_sync_never_hangs_when_the_input_ends_in_the_midst_of_a_round():
    office = Office(Sync(), num_replicas=2, num_records=3)
    office.come()
    assert sorted(office.push(0, 1)) == [0, 1] or office.tickets[0]
    for replica in (0, 1):
        if office.tickets[replica]:
            office.push(replica)
    assert office.words.endswith("CLOSE1")
    assert office.snapshot == (2, True)


def test_sync_never_hangs_when_it_is_stopped_or_cut_in_the_midst_of_a_round():
    office = Office(Sync())
    office.come()
    office.push(0)
    office.job.request_snapshot()
    office.hear()
    office.push(1)
    assert office.snapshot == (1, False)
    office.job.resume(1)
    office.hear()
    office.push(0)
    office.job.return_tickets(1, 0)
    office.job.stop("enough")
    office.hear()
    assert office.snapshot == (2, True)
    assert office.words == "SUM0 SUM1 CLOSE2 SUM0 CLOSE1"


def test_a_cut_that_nobody_copies_leaves_the_log_as_it_is():
    job = Job(InputSpec(1000, num_epochs=None), None, None, consistency=Sync(1), num_replicas=2, num_shards=2)
    job.open()
    for replica in (0, 1):
        job.join(replica, 0)
        job.ask(replica, 0)
    job.due()
    job.push(1, 0, 1, 1)
    job.request_snapshot()
    job.due(saver_waits=True)
    job.away(1, 0)
    job.copying(1)
    job.resume(1)
    assert not job.snapshot().log
    job.push(0, 0, 1, 1)  # too late: its ticket is void
    job.request_snapshot()
    *_, ready = job.due(saver_waits=True)
    assert (ready.snapshot.step, [entry.decision for entry in ready.snapshot.log]) == (1, [Decision.DROP])
    job.resume(1)  # there is a checkpoint of that step
    assert job.snapshot().log == ready.snapshot.log


@pytest.mark.parametrize("replicas_to_aggregate", [1, 2, 3, 5])
def test_sync_ends_at_max_steps_whatever_is_under_way(replicas_to_aggregate):
    office = Office(Sync(replicas_to_aggregate), num_replicas=3, max_steps=7, save_steps=3)
    office.come()
    chance = random.Random(replicas_to_aggregate)
    while office.snapshot != (7, True):
        ready = [m for m in range(3) if office.tickets[m]]
        if ready:
            office.push(chance.choice(ready))
        if office.snapshot and not office.snapshot[1]:
            step, office.snapshot = office.snapshot[0], None
            assert step % 3 == 0
            office.job.resume(step)
            office.hear()
    assert office.job.global_step == 7


def test_a_bound_of_zero_makes_the_replicas_take_turns():
    office = Office(BoundedStaleness(0))
    assert office.come() == [0]
    assert office.push(0) == [0] or office.tickets[1]
    assert office.job.num_given == 1


def test_who_is_ahead_waits_until_the_slowest_has_pushed():
    office = Office(BoundedStaleness(2))
    office.come()
    assert office.push(0, 0) == [0, 0]
    assert office.push(0) == []
    assert office.job.global_step == 2
    assert sorted(office.push(1)) == [0, 1]
    assert office.words == "APPLY0 APPLY0 APPLY1 APPLY0"
    assert office.job.statistics()["max_staleness"] == 2


def test_who_is_ahead_goes_on_when_the_slowest_is_lost():
    office = Office(BoundedStaleness(1))
    office.come()
    office.push(0, 0)
    assert office.job.global_step == 1
    office.job.lost(1, 0)
    assert office.hear() == [0]
    assert office.job.global_step == 2


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(("bound", "num_replicas"), [(0, 3), (1, 2), (3, 2), (3, 5), (8, 4)])
def test_the_bound_holds_over_a_long_trace_of_uneven_replicas(bound, num_replicas, depth):
    num_steps = 100_000 // 10
    office = Office(BoundedStaleness(bound), num_replicas, max_steps=num_steps, save_steps=997)
    chance = random.Random(bound)
    office.come()
    speeds = [1 + 9 * replica for replica in range(num_replicas)]
    while office.snapshot != (num_steps, True):
        for replica in range(num_replicas) if depth else ():
            if len(office.tickets[replica]) == 1 and replica not in office.awaiting:
                office.come(replica)
        ready = [m for m in range(num_replicas) if office.tickets[m] and m not in office.awaiting]
        if ready:
            office.push(chance.choices(ready, [speeds[m] for m in ready])[0])
        if office.snapshot and not office.snapshot[1]:
            step, office.snapshot = office.snapshot[0], None
            office.job.resume(step)
            office.hear()
    facts = office.job.statistics()
    assert facts["pushes"] == num_steps
    assert facts["max_staleness"] <= bound
    assert bound == 0 or facts["max_staleness"] > 0


def test_a_second_ticket_is_given_at_once_or_not_at_all():
    office = Office(Async(), num_replicas=1, max_steps=3)
    assert office.come(0) == [0]
    assert office.come(0) == [0]
    assert office.push(0) == [0]
    assert office.push(0) == [-1]
    assert office.push(0) == []
    assert office.snapshot == (3, True)


def test_an_answer_that_was_lost_is_given_again_not_another_one():
    office = Office(Async(), num_replicas=1)
    office.come(0)
    office.job.ask(0, 0, 0)
    assert office.hear() == [0]
    office.tickets[0].pop()
    office.come(0)
    office.push(0)
    office.job.push(0, 0, 1, 1, num_known=1)
    assert office.hear() == [0]
    assert office.job.num_given == 2


def test_sync_closes_a_half_full_round_when_the_input_ends_and_nobody_is_there():
    office = Office(Sync(), num_replicas=2, num_records=3)
    office.come()
    assert sorted(office.push(0, 1)) == [0]
    office.job.away(1, 0)
    office.job.push(0, 0, 2, 1)
    office.job.away(0, 0)
    office.hear()
    assert office.words == "SUM0 SUM1 CLOSE2 SUM0 CLOSE1"
    assert office.snapshot == (2, True)
