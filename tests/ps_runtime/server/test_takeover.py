"""What ps tell a new life of the chief, and what they take of the life before."""

from __future__ import annotations

from typing import Any

import pytest

from psflow.ps_runtime.protocol.job_state import JobState, Snapshot
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.server.instructions import Phase
from tests.ps_runtime.server.started_job import VALUES, StartedJob

LIFE, NEXT_LIFE = 5, 6


def come(job: StartedJob, purpose: Purpose, ps: int = 0, incarnation: int = NEXT_LIFE) -> tuple[int, Message]:
    """Have a life of the chief say HELLO; return its connection, and the answer."""
    peer = job.servers.connect()
    reply = job.servers.send(ps, peer, job.servers.hello(purpose, 0, incarnation))
    assert reply is not None
    return peer, reply


def state_of(job: StartedJob) -> JobState:
    """Return what a new life of the chief is told."""
    peer, _ = come(job, Purpose.SAVE)
    reply = job.say(peer, Message(Kind.JOB_STATE), incarnation=NEXT_LIFE)
    assert reply is not None
    return JobState.from_facts(reply.json())


def snapshot(job: StartedJob) -> Snapshot:
    """Have the only ticket used, and a snapshot announced."""
    assert job.say(job.saver[0], Message(Kind.REQUEST_SNAPSHOT)) is not None
    for ps in (1, 0):
        body = job.servers.push_body(ps, VALUES)
        job.say(job.chief[ps], Message(Kind.PUSH, sequence=1, body=body), ps=ps)
    told = job.say(job.saver[0], Message(Kind.AWAIT_SNAPSHOT))
    assert told is not None
    assert told.kind is Kind.SNAPSHOT_DUE
    return Snapshot.from_facts(told.json())


def copy(job: StartedJob, told: Snapshot) -> None:
    """Have all shards copy a snapshot, and training go on."""
    for ps in (0, 1):
        reply = job.say(job.saver[ps], Message.of(Kind.SNAPSHOT, told.to_facts(), step=told.step), ps=ps)
        assert reply is not None
        assert reply.kind is Kind.DONE
    job.say(job.saver[0], Message(Kind.RESUME, step=told.step))


def test_a_job_without_values_is_not_open_and_one_that_trains_is(servers_of: Any) -> None:
    job = StartedJob(servers_of)
    assert state_of(job) == JobState(is_open=False, is_finished=False)
    job = StartedJob(servers_of).open()
    assert state_of(job) == JobState(is_open=True, is_finished=False)


def test_a_job_with_a_cut_before_its_first_step_is_not_open_before_the_chief_has_said_so(servers_of: Any) -> None:
    job = StartedJob(servers_of)
    job.say(job.saver[0], Message(Kind.REQUEST_SNAPSHOT))
    assert job.servers.job.phase is Phase.OPENING_SNAPSHOT_REQUESTED
    assert not state_of(job).is_open


def test_a_cut_is_told_of_from_its_copies_to_its_checkpoint(job: StartedJob) -> None:
    told = snapshot(job)
    assert job.servers.job.state().uncommitted is None
    copy(job, told)
    assert state_of(job) == JobState(is_open=True, is_finished=False, uncommitted=told)
    peer, _ = come(job, Purpose.SAVE)
    job.say(peer, Message(Kind.COMMITTED, step=told.step), incarnation=NEXT_LIFE)
    assert state_of(job).uncommitted is None


def test_a_finished_job_says_so(job: StartedJob) -> None:
    job.say(job.chief[0], Message.of(Kind.STOP, {"reason": "enough"}))
    told = job.say(job.saver[0], Message(Kind.AWAIT_SNAPSHOT))
    assert told is not None
    assert told.kind is Kind.FINAL_SNAPSHOT_DUE
    job.say(job.saver[0], Message(Kind.RESUME, step=0))
    assert not state_of(job).is_finished
    peer, _ = come(job, Purpose.SAVE)
    job.say(peer, Message(Kind.FINISH), incarnation=NEXT_LIFE)
    assert state_of(job) == JobState(is_open=True, is_finished=True)


@pytest.mark.parametrize("ps", [0, 1])
def test_an_earlier_life_of_the_chief_saves_nothing_any_more(job: StartedJob, ps: int) -> None:
    assert come(job, Purpose.SAVE, ps)[1].kind is Kind.DONE
    words = "incarnation 5 of chief-0 has ended; expected 6 or later"
    for kind in (Kind.SNAPSHOT, Kind.WRITE, Kind.FINISH):
        job.refuses(words, job.saver[ps], Message(kind, step=0), ps=ps)
    late, reply = come(job, Purpose.SAVE, ps, incarnation=LIFE)
    assert reply.json() == {"code": "incarnation", "reason": words}
    assert late not in job.servers.handlers[ps]._peers


def test_a_file_that_an_earlier_life_has_asked_for_is_not_written_again(job: StartedJob) -> None:
    told = snapshot(job)
    copy(job, told)
    write = Message(Kind.WRITE, step=told.step)
    storage = job.servers.handlers[1]._storage
    assert job.say(job.saver[1], write, ps=1) is None
    job.servers.disconnect(1, job.saver[1])
    peer, _ = come(job, Purpose.SAVE, ps=1)
    assert job.say(peer, write, ps=1, incarnation=NEXT_LIFE) is None
    job.servers.deliver(1, job.servers.handlers[1].written(told.step, {"file": "a"}))
    reply = job.servers.inbox.pop((1, peer))
    assert (reply.kind, reply.json()) == (Kind.DONE, {"file": "a"})
    assert job.say(peer, write, ps=1, incarnation=NEXT_LIFE) == reply
    assert storage.writing == [told.step]


def test_a_lost_chief_gives_its_ticket_back_and_the_others_go_on_to_the_next_cut(job: StartedJob) -> None:
    assert job.say(job.worker[0], Message(Kind.NEXT), replica=1) is not None
    assert job.servers.job.num_given == 2
    job.servers.deliver(0, job.servers.job_requests.lost(0, LIFE))
    assert (job.servers.job.num_given, job.servers.job.replicas) == (1, {1: LIFE})
    job.refuses("incarnation 5 of chief-0 is not part of this job", job.chief[0], Message(Kind.NEXT))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "not the state of a job: it has no 'is_open'"),
        ({"is_open": True, "is_finished": False}, "not the state of a job: it has no 'uncommitted'"),
        (
            {"is_open": 1, "is_finished": False, "uncommitted": None},
            "not the state of a job: expected true or false, got 1 and False",
        ),
        ({"is_open": True, "is_finished": "no", "uncommitted": None}, "expected true or false, got True and 'no'"),
        ({"is_open": True, "is_finished": False, "uncommitted": {}}, "not the facts of a snapshot"),
    ],
)
def test_what_is_not_the_state_of_a_job_is_refused(facts: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        JobState.from_facts(facts)
