"""Workers that are at a step for too long while others wait, told by plain calls and by seconds that are said."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.server.instructions import Granted, Phase, Refusal, SnapshotReady
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Consistency, StepDeadline, Sync
from psflow.ps_runtime.specs.input import InputSpec, RecordRange
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec
from tests.ps_runtime.server.started_job import StartedJob

CHIEF, WORKER, OTHER = range(3)
DEADLINE = StepDeadline(multiple=10, min_secs=2, max_secs=100)
SGD = GradientDescent(learning_rate=1.0)
MODEL = ModelSpec((VariableSpec("w", (), "float32", 0),), (SGD.config(),))


@dataclass
class Training:
    """A job of a chief and two workers, each of which holds a ticket; records are of one batch each."""

    consistency: Consistency = field(default_factory=Async)
    save_steps: int | None = None
    num_replicas: int = 3
    num_records: int | None = 1000

    def __post_init__(self) -> None:
        spec = InputSpec(self.num_records, num_epochs=None if self.num_records else 1, split_batches=1)
        self.job = Job(spec, None, self.save_steps, None, self.consistency, self.num_replicas, 1, DEADLINE)
        self.tickets: dict[int, RecordRange] = {}
        self.incarnations = dict.fromkeys(range(self.num_replicas), 1)
        self.sequences = dict.fromkeys(range(self.num_replicas), 0)
        self.job.open()
        for replica in range(self.num_replicas):
            self.come(replica)

    def come(self, replica: int) -> None:
        """Have a life of a replica join and ask."""
        self.sequences[replica] = self.job.join(replica, self.incarnations[replica])
        self.job.ask(replica, self.incarnations[replica])
        self.settle()

    def settle(self) -> None:
        """Record the tickets that are given."""
        for instruction in self.job.due():
            if isinstance(instruction, Granted):
                self.tickets[instruction.replica] = instruction.records

    def push(self, replica: int) -> None:
        """Use the ticket of a replica."""
        self.tickets.pop(replica)
        self.sequences[replica] += 1
        self.job.push(replica, self.incarnations[replica], self.sequences[replica], 1)
        self.settle()

    def tick(self, secs: float, fetching: Iterable[int] = ()) -> list[int]:
        """Let time pass; return who is lost, and have it begin a new life later."""
        expired = self.job.tick(secs, tuple(fetching))
        for end in expired:
            assert end.records == self.tickets.pop(end.replica, end.records)
            self.incarnations[end.replica] += 1
        self.settle()
        return [end.replica for end in expired]

    def at_a_cut(self, waiting: Iterable[int]) -> None:
        """Request a snapshot, for which some wait already."""
        self.job.request_snapshot()
        for replica in waiting:
            self.push(replica)


def at_the_second_step(secs: float = 0.0, **facts: object) -> Training:
    """Return a job whose replicas have made their first step, and a second one of so many seconds."""
    training = Training(**facts)  # type: ignore[arg-type]
    for taken in (0.0, secs):
        training.tick(taken)
        for replica in range(training.num_replicas):
            training.push(replica)
    return training


def test_a_worker_that_others_wait_for_is_lost_at_its_deadline_and_its_batch_goes_to_another() -> None:
    training = at_the_second_step()
    records = training.tickets[WORKER]
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(1.9) == []
    assert training.tick(0.1) == [WORKER]
    assert (training.job.replicas, training.job.phase) == ({CHIEF: 1, OTHER: 1}, Phase.SNAPSHOT_DUE)
    [snapshot] = training.job.due(saver_waits=True)
    assert isinstance(snapshot, SnapshotReady)
    training.job.resume(snapshot.snapshot.step)
    training.settle()
    assert records in training.tickets.values()
    for call in (lambda: training.job.push(WORKER, 1, 3, 1), lambda: training.job.ask(WORKER, 1)):
        with pytest.raises(Refusal, match="not part of this job any more: it made no push within 2 s, and others wa"):
            call()
    with pytest.raises(Refusal, match="incarnation 1 of worker-0 has ended; expected 2 or later"):
        training.job.join(WORKER, 1)
    training.come(WORKER)
    assert WORKER in training.tickets


def test_a_worker_may_take_as_long_as_it_likes_while_nobody_waits() -> None:
    training = at_the_second_step()
    assert training.tick(1e9) == []
    training.at_a_cut([CHIEF])
    assert training.tick(0.1) == [WORKER, OTHER]  # who waits now does not wait any longer


def test_the_chief_has_no_deadline() -> None:
    training = at_the_second_step()
    training.at_a_cut([WORKER, OTHER])
    assert training.tick(1e9) == []
    training.push(CHIEF)
    assert training.job.phase is Phase.SNAPSHOT_DUE


def test_the_first_step_of_each_life_has_the_longest_deadline() -> None:
    training = Training()
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(99.9) == []
    assert training.tick(0.1) == [WORKER]
    training = at_the_second_step()
    training.job.lost(WORKER, 1)
    training.incarnations[WORKER] = 2
    training.come(WORKER)
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(99.9) == []


@pytest.mark.parametrize(("secs", "allowed_secs"), [(0.1, 2.0), (0.5, 5.0), (4.0, 40.0), (50.0, 100.0)])
def test_the_deadline_is_a_multiple_of_the_usual_step_between_bounds(secs: float, allowed_secs: float) -> None:
    training = at_the_second_step(secs)
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(allowed_secs - 0.01) == []
    assert training.tick(0.01) == [WORKER]


def test_what_is_usual_follows_the_steps_slowly() -> None:
    training = at_the_second_step(1.0)
    training.tick(17.0)
    for replica in range(3):
        training.push(replica)
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(19.99) == []  # 1 s and a sixteenth of the 16 s that it was longer
    assert training.tick(0.01) == [WORKER]


def test_for_a_worker_that_was_lost_so_the_least_deadline_doubles() -> None:
    training = at_the_second_step()
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(2.0) == [WORKER]
    training.job.due(saver_waits=True)
    training.job.resume(training.job.global_step)
    training.settle()
    training.come(WORKER)
    training.push(WORKER)
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(3.9) == []
    assert training.tick(0.1) == [WORKER]


def test_for_a_batch_that_a_worker_was_lost_at_the_deadline_doubles_until_it_is_used() -> None:
    training = at_the_second_step(num_replicas=4)
    records = training.tickets[WORKER]
    training.at_a_cut([CHIEF, OTHER, 3])
    assert training.tick(2.0) == [WORKER]
    training.job.due(saver_waits=True)
    training.job.resume(training.job.global_step)
    training.settle()
    [holder] = [replica for replica, held in training.tickets.items() if held == records]
    assert holder == CHIEF, "who waited first"
    training.push(CHIEF)
    assert training.job._deadlines._num_expired.keys() == {WORKER}


def test_time_at_a_cut_is_nobodys() -> None:
    training = at_the_second_step(consistency=Sync(2))
    training.push(CHIEF)  # which closes no round
    assert training.job.phase is Phase.TRAINING
    training.job.request_snapshot()
    training.push(OTHER)
    assert training.job.phase is Phase.SNAPSHOT_DUE, "the ticket of the worker is void"
    assert training.tick(1e9) == []


def test_synchronous_training_goes_on_without_the_worker_at_its_deadline() -> None:
    training = at_the_second_step(consistency=Sync())
    step = training.job.global_step
    training.push(CHIEF)
    training.push(OTHER)
    assert training.job.global_step == step
    assert training.tick(2.0) == [WORKER]
    assert training.job.global_step == step + 1
    assert {CHIEF, OTHER} <= training.tickets.keys()


def test_who_holds_a_void_ticket_has_a_deadline_too() -> None:
    training = at_the_second_step(consistency=Sync(2))
    training.push(CHIEF)
    training.push(OTHER)  # the ticket of the worker is void now
    training.push(CHIEF)  # waits for either of the two
    assert training.tick(2.0) == [WORKER, OTHER]
    assert CHIEF in training.tickets, "a round of what the living can give"


def test_a_worker_that_waits_for_a_batch_of_a_stream_is_not_late() -> None:
    training = Training(num_records=None)
    for _ in range(2):
        for replica in range(3):
            training.push(replica)
    training.at_a_cut([CHIEF])
    assert training.tick(1e9, fetching=[WORKER]) == [OTHER]
    assert training.tick(1.9) == []
    assert training.tick(0.1) == [WORKER]


def test_of_two_tickets_the_second_counts_from_the_push_with_the_first() -> None:
    training = at_the_second_step()
    training.job.ask(WORKER, 1, num_known=1)
    training.job.due()
    training.tick(1.5)
    training.job.push(WORKER, 1, 3, 1, num_known=1)
    training.job.due()
    training.at_a_cut([CHIEF, OTHER])
    assert training.tick(1.9) == []
    assert training.job.tick(0.1)[0].replica == WORKER


def test_a_worker_whose_push_waits_for_others_is_not_late_with_its_next_ticket() -> None:
    training = at_the_second_step(consistency=BoundedStaleness(4))
    job, key = training.job, training.job._replicas.living[WORKER]
    job.ask(WORKER, 1, num_known=1)
    job.due()
    while not job._updates.holds_push_of(WORKER):  # the chief has an old ticket, and holds the others up
        job.push(WORKER, 1, key.sequence + 1, 1, num_known=len(key.tickets) - 1)
        job.due()
    training.push(OTHER)
    assert key.tickets
    assert {WORKER, OTHER} <= job._queue.waiting.keys()
    assert training.tick(1e9) == []


def test_a_batch_that_three_lives_were_lost_at_is_named() -> None:
    job = Job(InputSpec(100, 4, None), None, None, num_replicas=5, step_deadline=DEADLINE)
    shard = Shard(place(MODEL, 1)[0], [SGD])
    requests = JobRequests(job, None, shard)
    job.open()
    allowed_secs = DEADLINE.max_secs
    for replica in range(1, 4):
        job.join(replica, 1)
        job.ask(replica, 1)
        [granted] = [given for given in job.due() if isinstance(given, Granted)]
        assert granted.records == RecordRange(0, 0, 4)
        job.join(4, replica)
        job.request_snapshot()  # so that this one waits, and gets no ticket
        job.ask(4, replica)
        job.due()
        assert requests.tick(allowed_secs - 1) == []
        if replica < 3:
            requests.tick(1)
            job.due(saver_waits=True)
            job.lost(4, replica)
            job.resume(0)
        allowed_secs *= 2
    words = (
        r"^worker-2, like 2 incarnations of replicas before it, did not push a gradient of records 0 to 3 of "
        r"epoch 0 within 400 s: check how input_fn and model_fn handle these"
    )
    with pytest.raises(WaitTimeoutError, match=words):
        requests.tick(1)


def test_a_life_that_is_over_fetches_nothing(servers_of: object) -> None:
    job = StartedJob(servers_of, input_spec=InputSpec(None)).open()
    job.say(job.worker[0], Message(Kind.NEXT), 1)
    job.servers.job.lost(1, 5, "it was silent")
    reply = job.say(job.worker[0], Message(Kind.FETCH, step=0), 1)
    assert reply is not None
    assert reply.json() == {
        "code": "incarnation",
        "reason": "incarnation 5 of worker-0 is not part of this job any more: it was silent",
    }


@pytest.mark.parametrize(
    ("facts", "fault"),
    [
        ({"multiple": 1}, "multiple should be greater than 1, got 1"),
        ({"multiple": "2"}, "multiple should be a number, got str '2'"),
        ({"min_secs": 0}, "min_secs should be greater than 0, got 0"),
        ({"min_secs": 5, "max_secs": 4}, "min_secs should be at most max_secs, got 5 and 4"),
        ({"max_secs": math.inf}, "max_secs should be finite"),
    ],
)
def test_a_deadline_that_cannot_be_is_refused(facts: dict[str, object], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        StepDeadline(**facts)  # type: ignore[arg-type]


def test_a_minimum_that_has_doubled_often_is_the_maximum() -> None:
    assert DEADLINE.secs(0.0, num_lost=10_000) == 100


def test_with_a_queue_of_its_own_a_worker_is_not_late_for_who_has_used_up_another_one() -> None:
    job = Job(InputSpec(2, each_worker_reads_all=True), None, None, num_replicas=2)
    job.open()
    for replica in (CHIEF, WORKER):
        job.join(replica, 1)
        job.ask(replica, 1)
    job.due()
    for sequence in (1, 2):
        job.push(CHIEF, 1, sequence, 1)
        job.due()
        if sequence == 1:
            job.push(WORKER, 1, sequence, 1)
            job.due()
    assert job.tick(1e9) == []
    job.request_snapshot()
    assert [end.replica for end in job.tick(1.0)] == [WORKER]
