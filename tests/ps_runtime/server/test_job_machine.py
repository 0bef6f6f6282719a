"""Any order of events leaves the job sound, and from anywhere a fair schedule brings it to its end."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.server.instructions import Granted, JobFinished, Phase, Refusal, SnapshotReady
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.specs.input import InputSpec, RecordRange

NUM_REPLICAS = 3
REPLICAS = st.integers(0, NUM_REPLICAS - 1)
MAX_EVENTS = 500


@dataclass
class World:
    """What has happened, told plainly: lives and their pushes, records used, tickets out."""

    sequences: dict[tuple[int, int], int] = field(default_factory=dict)
    used: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    step: int = 0
    incarnations: dict[int, int] = field(default_factory=dict)
    asking: set[int] = field(default_factory=set)
    tickets: dict[int, RecordRange] = field(default_factory=dict)
    boundary: float = math.inf


class JobMachine(RuleBasedStateMachine):
    @initialize(
        num_records=st.integers(1, 30),
        batch_size=st.integers(1, 4),
        num_epochs=st.integers(1, 2),
        split_batches=st.integers(1, 3),
        is_stream=st.booleans(),
        reads_all=st.booleans(),
        max_steps=st.one_of(st.none(), st.integers(1, 25)),
        save_steps=st.one_of(st.none(), st.integers(1, 6)),
        is_open=st.sampled_from([True, True, True, False]),
    )
    def begin(
        self, num_records, batch_size, num_epochs, split_batches, is_stream, reads_all, max_steps, save_steps, is_open
    ):
        if is_stream:
            self.spec = InputSpec(None, split_batches=split_batches, each_worker_reads_all=reads_all)
            num_batches = num_records
        else:
            self.spec = InputSpec(num_records, batch_size, num_epochs, split_batches, each_worker_reads_all=reads_all)
            num_batches = num_epochs * math.ceil(num_records / batch_size)
        self.num_records, self.num_queues = num_records, NUM_REPLICAS if reads_all else 1
        self.num_batches = self.num_queues * num_batches
        self.max_steps, self.save_steps = max_steps, save_steps
        self.job = Job(self.spec, max_steps, save_steps, num_replicas=NUM_REPLICAS)
        self.world = World()
        self.newest = dict.fromkeys(range(NUM_REPLICAS), 0)
        self.saved: tuple[Snapshot, Counter] | None = None
        self.told: SnapshotReady | None = None
        self.saver_waits = self.is_stopped = False
        self.ended: set[int] = set()
        self.resting: set[int] = set()
        self.set_boundary()
        if is_open:
            self.open()

    def set_boundary(self):
        if self.save_steps:
            self.world.boundary = (self.world.step // self.save_steps + 1) * self.save_steps

    # events of replicas

    @rule(replica=REPLICAS, is_new=st.booleans())
    def join(self, replica, is_new):
        world = self.world
        if is_new or replica not in world.incarnations:
            self.newest[replica] += 1
            self.drop(replica)
        world.incarnations[replica] = incarnation = self.newest[replica]
        assert self.job.join(replica, incarnation) == world.sequences.setdefault((replica, incarnation), 0)
        self.settle()

    @rule(replica=REPLICAS, age=st.integers(1, 3))
    def an_old_life_is_refused(self, replica, age):
        oldest = max((i for m, i in self.world.sequences if m == replica), default=0)
        if oldest < age:
            return
        before = repr(vars(self.job))
        with pytest.raises(Refusal, match="has ended"):
            self.job.join(replica, oldest - age)
        with pytest.raises(Refusal, match="not part of this job"):
            self.job.push(replica, oldest - age, 1, 1)
        assert repr(vars(self.job)) == before

    @rule(replica=REPLICAS)
    def ask(self, replica):
        if replica not in self.world.incarnations:
            return
        self.job.ask(replica, self.world.incarnations[replica])
        self.world.asking.add(replica)
        self.settle()

    @rule(replica=REPLICAS)
    def away(self, replica):
        if replica not in self.world.incarnations:
            return
        self.job.away(replica, self.world.incarnations[replica])
        self.world.asking.discard(replica)
        self.settle()

    @rule(replica=REPLICAS)
    def push(self, replica):
        world = self.world
        if replica not in world.tickets or self.is_beyond(replica):
            return
        key = (replica, world.incarnations[replica])
        records = world.tickets.pop(replica)
        assert self.job.push(*key, world.sequences[key] + 1, 7) == records
        world.sequences[key] += 1
        world.used.update(self.keys(replica, records))
        world.step += 1
        world.asking.add(replica)
        self.settle()

    @rule(replica=REPLICAS, num_pushes=st.integers(0, 6))
    def train(self, replica, num_pushes):
        if replica not in self.world.incarnations:
            self.join(replica, False)
        self.ask(replica)
        for _ in range(num_pushes):
            if replica in self.world.tickets and not self.is_beyond(replica):
                self.push(replica)

    @rule(replica=REPLICAS)
    def repeat(self, replica):
        if replica not in self.world.incarnations:
            return
        key = (replica, self.world.incarnations[replica])
        step = self.job.global_step
        assert self.job.push(*key, self.world.sequences[key], 7) is None
        assert self.job.global_step == step
        self.world.asking.add(replica)
        self.settle()

    @rule(replica=REPLICAS, ahead=st.integers(1, 3))
    def a_push_without_a_ticket_or_out_of_turn_is_refused(self, replica, ahead):
        if replica not in self.world.incarnations:
            return
        if ahead == 1 and replica in self.world.tickets:
            return
        key = (replica, self.world.incarnations[replica])
        before = repr(vars(self.job))
        with pytest.raises(Refusal, match=r"has no ticket|out of turn"):
            self.job.push(*key, self.world.sequences[key] + ahead, 7)
        assert repr(vars(self.job)) == before

    @rule(replica=REPLICAS)
    def lose(self, replica):
        if replica not in self.world.incarnations:
            return
        self.job.lost(replica, self.world.incarnations[replica])
        self.job.lost(replica, self.world.incarnations[replica])
        self.drop(replica)
        self.newest[replica] += 1
        self.settle()

    @rule(secs=st.sampled_from([0.2, 0.8, 700.0, 1e9]), fetching=st.sets(REPLICAS))
    def tick(self, secs, fetching):
        """Let time pass: whom others wait for, and gain by it, is lost, but not the chief, or who waits for a batch."""
        world, phase = self.world, self.job.phase
        waiting = world.asking - self.resting
        can_gain = not all(map(self.job.input.has_used_up_own, waiting))
        matters = phase is Phase.SNAPSHOT_REQUESTED or (phase is Phase.TRAINING and can_gain)
        late = {m for m in world.tickets if m and m not in fetching and waiting - {m}} if matters else set()
        expired = self.job.tick(secs, fetching)
        assert {end.replica for end in expired} <= late
        assert secs < 1e9 or len(expired) == len(late)
        for end in expired:
            assert (end.incarnation, end.records) == (world.incarnations[end.replica], world.tickets[end.replica])
            with pytest.raises(Refusal, match="not part of this job any more: it made no push within"):
                self.job.push(end.replica, end.incarnation, world.sequences[end.replica, end.incarnation] + 1, 1)
            self.drop(end.replica)
            self.newest[end.replica] += 1
        self.settle()

    def keys(self, replica, records):
        """Yield what a batch uses up: records of the queue of `replica`, which may be that of all."""
        for record in range(records.start, records.stop):
            yield self.queue(replica), records.epoch, record

    def queue(self, replica):
        return replica if self.spec.each_worker_reads_all else 0

    def is_beyond(self, replica):
        """Whether a ticket is for a batch that the stream turns out not to have."""
        return self.spec.is_stream and self.world.tickets[replica].start >= self.num_records

    def drop(self, replica):
        self.world.incarnations.pop(replica, None)
        self.world.tickets.pop(replica, None)
        self.world.asking.discard(replica)
        self.resting.discard(replica)

    @precondition(lambda self: self.job.phase in (Phase.TRAINING, Phase.SNAPSHOT_REQUESTED))
    @rule(replica=REPLICAS)
    def stop(self, replica):
        if replica not in self.world.tickets:
            return
        self.job.return_tickets(replica, self.world.incarnations[replica])
        self.job.stop("enough")
        self.is_stopped = True
        del self.world.tickets[replica]
        self.world.asking.add(replica)
        self.settle()

    @precondition(lambda self: self.job.phase in (Phase.TRAINING, Phase.SNAPSHOT_REQUESTED))
    @rule(replica=REPLICAS)
    def rest(self, replica):
        """Wait for the others to leave: they get their tickets, and this one gets none."""
        if replica not in self.world.incarnations:
            return
        self.job.return_tickets(replica, self.world.incarnations[replica])
        self.job.stop_after_others(replica, "its loop has ended")
        self.is_stopped = True  # perhaps, with the last of them
        self.world.tickets.pop(replica, None)
        self.resting.add(replica)
        self.world.asking.add(replica)
        self.settle()

    # events of the chief and of the reader

    @precondition(lambda self: self.job.phase is Phase.OPENING)
    @rule()
    def open(self):
        self.job.open()
        self.settle()

    @rule()
    def request_snapshot(self):
        self.job.request_snapshot()
        self.settle()

    def saver_comes(self):
        if self.job.is_finished:
            with pytest.raises(Refusal, match="no further snapshot comes"):
                self.job.forget_saver()
            return
        self.job.forget_saver()
        self.told, self.saver_waits = None, True
        self.settle()

    @rule(hears=st.booleans(), resumes=st.booleans())
    def save(self, hears, resumes):
        if hears:
            self.saver_comes()
        if resumes:
            self.saver_resumes()

    def saver_resumes(self):
        if self.told is not None:
            snapshot, is_final = self.told.snapshot, self.told.is_final
            self.saved = (snapshot, self.world.used.copy())
            self.job.resume(snapshot.step)
            self.job.resume(snapshot.step)
            if not is_final:
                self.told = None
            self.set_boundary()
        self.settle()

    @rule()
    def finish(self):
        """Only a saver that knows of the final snapshot, and has made it, ends the job."""
        if self.job.phase is Phase.DRAINED:
            if self.told is not None and self.told.is_final:
                self.job.finish()
                self.settle()
        elif not self.job.is_finished:
            with pytest.raises(Refusal, match="cannot finish yet"):
                self.job.finish()

    @precondition(lambda self: self.spec.is_stream)
    @rule(replica=REPLICAS)
    def stream_ends(self, replica):
        """Record the end: nobody can have used what lies beyond it."""
        if not self.spec.each_worker_reads_all:
            self.job.end_stream(self.num_records)
        elif replica in self.world.incarnations:
            self.job.end_private_stream(replica, self.world.incarnations[replica], self.num_records)
        else:
            return
        self.ended.add(self.queue(replica))
        self.world.tickets = {
            m: r for m, r in self.world.tickets.items() if r.start < self.num_records or self.queue(m) not in self.ended
        }
        self.settle()

    @rule()
    def make_a_cut(self):
        self.request_snapshot()
        for replica in [m for m in self.world.tickets if not self.is_beyond(m)]:
            self.push(replica)
        self.saver_comes()
        self.saver_resumes()

    @precondition(lambda self: self.saved is not None)
    @rule(is_open=st.booleans())
    def restore(self, is_open):
        """Kill everything; restart from the last snapshot, maybe with replicas that were there before."""
        snapshot, used = self.saved
        self.job = Job(self.spec, self.max_steps, self.save_steps, num_replicas=NUM_REPLICAS)
        self.job.join(0, 0)  # the chief is there before it restores: an old life of it goes, a living one stays
        self.job.restore(Snapshot.from_facts(snapshot.to_facts()))
        was_there = 0 in self.job.replicas
        assert was_there == (max((i for m, i in snapshot.sequences if m == 0), default=0) == 0)
        self.world = World(dict(snapshot.sequences), used.copy(), snapshot.step)
        if was_there:
            self.world.incarnations[0] = self.newest[0] = 0
            self.world.sequences.setdefault((0, 0), 0)
        self.told, self.saver_waits, self.is_stopped = None, False, False
        self.ended, self.resting = set(), set()
        self.set_boundary()
        if is_open:
            self.open()

    # the rest of the world

    def settle(self):
        for instruction in self.job.due(self.saver_waits):
            match instruction:
                case Granted(replica, step, records):
                    assert step <= self.world.step
                    assert replica in self.world.asking
                    assert replica not in self.resting
                    self.world.asking.remove(replica)
                    known = self.world.tickets.setdefault(replica, records)
                    assert known == records, "the ticket that is out is told again"
                    if self.spec.is_stream and records.start >= self.num_records:
                        assert self.queue(replica) not in self.ended
                case JobFinished(replica, step):
                    assert (replica in self.world.asking, step) == (True, self.world.step)
                    self.world.asking.remove(replica)
                case SnapshotReady(snapshot, _):
                    assert self.world.tickets == {}
                    assert self.saver_waits
                    assert snapshot.step == self.world.step
                    living = {(m, i): self.world.sequences[m, i] for m, i in self.world.incarnations.items()}
                    assert living.items() <= snapshot.sequences.items()
                    self.told, self.saver_waits = instruction, False

    @invariant()
    def counts_agree(self):
        job, world = self.job, self.world
        assert job.global_step == world.step
        assert job.num_given == len(world.tickets)
        assert job.num_examples >= 0
        assert job.input.num_repeats == 0
        assert all(count == 1 for count in world.used.values())
        if not world.tickets and not job.replicas:
            assert job.input.num_misses == 0

    @invariant()
    def tickets_keep_their_bounds(self):
        ahead = self.job.global_step + self.job.num_given
        if self.job.num_given:
            assert ahead <= (self.max_steps or math.inf)
            assert ahead <= self.world.boundary

    @invariant()
    def tickets_do_not_overlap(self):
        out = Counter(key for m, records in self.world.tickets.items() for key in self.keys(m, records))
        assert all(count == 1 for count in (out + self.world.used).values())

    def teardown(self):
        """Let all be fair: everyone asks and pushes, the saver saves, the reader reads on."""
        if not hasattr(self, "job"):
            return
        self.open()
        for _ in range(MAX_EVENTS):
            self.saver_comes()
            self.saver_resumes()
            if self.job.phase is Phase.DRAINED:
                self.finish()
            if self.job.is_finished and not self.world.asking:
                break
            for replica in range(NUM_REPLICAS):
                if replica not in self.world.incarnations:
                    self.join(replica, False)
                if replica in self.world.tickets and self.is_beyond(replica):
                    self.stream_ends(replica)
                if replica in self.world.tickets:
                    self.push(replica)
                elif not self.job.is_finished:
                    self.ask(replica)
            if self.spec.is_stream and self.world.step >= self.num_batches:
                for replica in range(NUM_REPLICAS):
                    self.stream_ends(replica)
        assert self.job.is_finished, self.job.statistics()
        assert self.job.input.num_repeats == self.job.input.num_misses == 0
        if not self.is_stopped:
            assert self.world.step == min(self.num_batches, self.max_steps or math.inf)
        if self.world.step == self.num_batches:
            assert len(self.world.used) == self.num_queues * self.num_records * (self.spec.num_epochs or 1)
            if len(self.ended) == self.num_queues or not self.spec.is_stream:
                assert self.job.input.epochs_completed == self.spec.num_epochs


JobMachine.TestCase.settings = settings(
    max_examples=settings().max_examples * 5 // 2, stateful_step_count=40, report_multiple_bugs=False
)
TestJobMachine = JobMachine.TestCase
