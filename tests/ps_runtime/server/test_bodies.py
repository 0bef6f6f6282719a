"""Bodies that a ps refuses, whoever sends them, and that they change nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.job_state import Decision, Entry, EntryLog, Snapshot
from psflow.ps_runtime.protocol.message import NO_REPLICA, Kind, Message
from psflow.ps_runtime.specs.input import InputSpec
from tests.ps_runtime.server.started_job import MODEL, StartedJob

JSON_KINDS = {Kind.SNAPSHOT: "saver", Kind.STOP: "chief"}
NO_OBJECTS = [b"\x80\x04N.", b"[1]", b"7", b'"x"', b"null", b"{", b"\xff\xfe", b"[" * 4000, b'{"a": ' * 600]


@pytest.mark.parametrize("kind", JSON_KINDS)
@pytest.mark.parametrize("body", NO_OBJECTS)
def test_a_body_that_is_no_object_breaks_the_protocol(job, kind, body):
    peer = getattr(job, JSON_KINDS[kind])[0]
    job.breaks(f"the body of {kind.name} is not", peer, Message(kind, body=body))


@pytest.mark.parametrize("body", NO_OBJECTS)
def test_a_hello_that_is_no_object_breaks_the_protocol(job, body):
    job.breaks("the body of HELLO is not", job.servers.connect(), Message(Kind.HELLO, body=body))


GOOD_SNAPSHOT = {"step": 0, "sequences": [[0, 5, 0]], "input": {}, "num_examples": 0, "log": [0, [1, 0, 5, 1]]}
BAD_PARTS = [None, True, "x", -1, 1.5, [], {}, [[]], [[1]], [["a", 1, 1]], [[0, -1, 0]], [[0, 1, None]], {"a": 1}]


BAD_FACTS = [
    (name, value)
    for name, good in GOOD_SNAPSHOT.items()
    for value in BAD_PARTS
    if (name, value) not in (("sequences", []), ("input", {}), ("input", {"a": 1}))
]
BAD_LOGS = [[0, 1], [0, [1, 0, 5]], [0, [5, 0, 5, 1]], [0, [1, -1, 5, 1]], [0, [1, 0, None, 1]], [0, [1, 0, 5, 1.5]]]


def test_the_cut_that_these_change_is_one():
    assert Snapshot.from_facts(GOOD_SNAPSHOT).to_facts() == GOOD_SNAPSHOT


@pytest.mark.parametrize(("name", "value"), [*BAD_FACTS, *(("log", log) for log in BAD_LOGS)])
@pytest.mark.parametrize("ps", [0, 1])
def test_facts_of_a_wrong_type_are_no_cut(job, name, value, ps):
    body = json.dumps(GOOD_SNAPSHOT | {name: value}).encode()
    job.breaks("not the facts of a snapshot", job.saver[ps], Message(Kind.SNAPSHOT, body=body), ps=ps)


@pytest.mark.parametrize("name", GOOD_SNAPSHOT)
def test_a_missing_fact_is_no_cut(job, name):
    facts = {key: value for key, value in GOOD_SNAPSHOT.items() if key != name}
    job.breaks("not the facts of a snapshot", job.saver[0], Message.of(Kind.SNAPSHOT, facts))


@pytest.mark.parametrize("reason", [None, 7, [], {"a": []}, "\ud800", "x" * 3000])
def test_any_reason_to_stop_will_do(job, reason):
    assert job.say(job.chief[0], Message.of(Kind.STOP, {"reason": reason})) is None
    assert 0 < len(job.servers.job.stop_reason) <= 500
    assert job.servers.job.num_given == 0


# anything at all

WORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FACTS = st.dictionaries(st.sampled_from([*GOOD_SNAPSHOT, "reason", "name", "token", "purpose", "job_id"]), WORDS)
BODIES = st.binary(max_size=200) | FACTS.map(lambda facts: json.dumps(facts).encode())
NUMBERS = st.sampled_from([0, 1, 2, 5, 6, 2**31, 2**32 - 1])
BIG = st.sampled_from([0, 1, 2, 3, 2**63 - 1])


@settings(max_examples=settings().max_examples * 2)
@given(data=st.data())
def test_garbage_ends_a_peer_and_nothing_else(servers_of, data):
    """Each message is answered, held or refused; a refusal changes nothing, and no other error comes out."""
    input_spec = data.draw(
        st.sampled_from([InputSpec(None), InputSpec(30), InputSpec(None, each_worker_reads_all=True)])
    )
    job = StartedJob(servers_of, input_spec=input_spec)
    if data.draw(st.booleans()):
        job.open()
    peers = [("saver", 0), ("chief", 0), ("worker", 1), ("watcher", NO_REPLICA), ("stranger", 0)]
    for _ in range(data.draw(st.integers(1, 6))):
        ps = data.draw(st.sampled_from([0, 0, 0, 1]))
        who, replica = data.draw(st.sampled_from(peers))
        if who == "watcher":
            ps, peer = 0, job.watcher
        else:
            peer = job.servers.connect() if who == "stranger" else getattr(job, who)[ps]
        if (ps, peer) in job.servers.inbox or not is_free(job, ps, peer):
            continue
        message = Message(
            data.draw(st.sampled_from([k for k in Kind if not k.is_reply])),
            data.draw(st.just(replica) | NUMBERS),
            data.draw(st.just(0 if who == "watcher" else 5) | NUMBERS),
            data.draw(BIG),
            data.draw(BIG),
            data.draw(BIG | BIG.map(lambda n: -n)),
            data.draw(st.just(MODEL.digest) | BIG),
            0,
            data.draw(BODIES | st.just(bytes(job.servers.handlers[ps].shard.push_layout.nbytes()))),
        )
        before = job.servers.state()
        try:
            reply = job.servers.send(ps, peer, message)
        except ProtocolError:
            assert job.servers.state() == before
            job.servers.disconnect(ps, peer)
            return
        if reply is not None and reply.kind is Kind.REFUSED and message.kind is not Kind.FETCH:
            assert job.servers.state() == before


def is_free(job: StartedJob, ps: int, peer: int) -> bool:
    """Whether a transport would let this peer say something: it is not waiting for an answer."""
    job_requests, handler = job.servers.job_requests, job.servers.handlers[ps]
    waiting = (
        {*job_requests._waiting.values(), *job_requests._fetching, *job_requests._watching, job_requests._saver}
        if ps == 0
        else set()
    )
    return peer not in waiting and (handler._writing is None or handler._writing[1] != peer)


# what is said to have been decided


@pytest.mark.parametrize(
    ("start", "entry", "reason"),
    [
        (0, Entry(Decision.APPLY, 1, 5, 1), "push 1 of worker-0 was decided, but never reached this shard"),
        (0, Entry.close(2), "a round of 2 gradients is closed, but 0 are summed here"),
        (0, Entry.close(0), "a round of 0 gradients is closed"),
        (1, Entry(Decision.DROP, 1, 5, 1), "expected log entries starting at 0, got 1"),
    ],
)
def test_a_log_must_fit_what_came_before_it(job, start, entry, reason):
    log = EntryLog(start)
    log.extend([entry])
    settled = job.servers.handlers[1].shard.num_settled
    job.refuses(reason, job.worker[1], Message(Kind.PULL, body=log.encode()), replica=1, ps=1)
    assert job.servers.handlers[1].shard.num_settled == settled
