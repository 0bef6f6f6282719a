"""What a ps refuses, and that it changes nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps_runtime.errors import ProtocolError
from ps_runtime.optimizers.gradient_descent import GradientDescent
from ps_runtime.server.entries import Decision, Entry, EntryLog
from ps_runtime.server.peers import Purpose
from ps_runtime.specs.input import InputSpec
from ps_runtime.specs.variables import ModelSpec, VariableSpec
from ps_runtime.transport.message import NO_MEMBER, Kind, Message

MODEL = ModelSpec(
    (VariableSpec("w", (2, 3), "float32", 0), VariableSpec("b", (3,), "float32", 0)),
    (GradientDescent(learning_rate=1.0).config(),),
)
VALUES = {v.name: np.ones(v.shape, v.dtype) for v in MODEL.variables}


class Job:
    """Two ps, a chief that saves, and two replicas that train: chief 0 holds a ticket, worker 1 has joined."""

    def __init__(self, servers_of: Any, saved: Any = None, input_spec: InputSpec | None = None) -> None:
        self.servers = servers_of(MODEL, 2, input_spec, saved=saved)
        self.saver = [self.join(ps, Purpose.SAVE, 0) for ps in (0, 1)]
        self.chief = [self.join(ps, Purpose.TRAIN, 0) for ps in (0, 1)]
        self.worker = [self.join(ps, Purpose.TRAIN, 1) for ps in (0, 1)]
        self.watcher = self.join(0, Purpose.WATCH, NO_MEMBER)

    def join(self, ps: int, purpose: Purpose, member: int) -> int:
        peer = self.servers.connect()
        incarnation = 0 if member == NO_MEMBER else 5
        assert self.servers.send(ps, peer, self.servers.hello(purpose, member, incarnation)).kind is Kind.DONE
        return peer

    def open(self) -> Job:
        for ps in (0, 1):
            arena = self.servers.arena_of(ps, VALUES)
            assert self.say(self.saver[ps], Message(Kind.INITIALIZE, body=arena.data), ps=ps).kind is Kind.DONE
        assert self.say(self.saver[0], Message(Kind.OPEN)).kind is Kind.DONE
        assert self.say(self.chief[0], Message(Kind.NEXT)).kind is Kind.GRANT
        return self

    def say(self, peer: int, message: Message, member: int = 0, ps: int = 0, incarnation: int = 5) -> Message | None:
        return self.servers.send(ps, peer, self.servers.signed(message, member, incarnation))

    def breaks(self, reason: str, peer: int, message: Message, **who: int) -> None:
        before = self.servers.state()
        with pytest.raises(ProtocolError, match=reason):
            self.say(peer, message, **who)
        assert self.servers.state() == before

    def refuses(self, reason: str, peer: int, message: Message, **who: int) -> None:
        before = self.servers.state()
        reply = self.say(peer, message, **who)
        assert reply is not None
        assert reply.kind is Kind.REFUSED
        assert reason in reply.json()["reason"]
        assert self.servers.state() == before


@pytest.fixture
def job(servers_of: Any) -> Job:
    return Job(servers_of).open()


# who is let in


@pytest.mark.parametrize("kind", [k for k in Kind if not k.is_reply and k is not Kind.HELLO])
def test_nothing_goes_before_hello(job, kind):
    job.breaks(f"{kind.name} before HELLO", job.servers.connect(), Message(kind))


def test_only_hello_has_a_body_before_hello(job):
    peer = job.servers.connect()
    handler = job.servers.handlers[0]
    assert [handler.max_body_bytes(peer, kind) > 0 for kind in (Kind.HELLO, Kind.PUSH, Kind.INITIALIZE)] == [1, 0, 0]


@pytest.mark.parametrize(
    "facts",
    [{"token": "another"}, {"token": ""}, {"token": None}, {"token": 7}, {"token": "\ud800"}, {"job_id": "another"}],
)
def test_who_does_not_know_the_job_is_no_member(job, facts):
    hello = job.servers.hello(Purpose.TRAIN, 0, 9, **facts)
    job.breaks("not a member of this job", job.servers.connect(), hello, incarnation=9)


@pytest.mark.parametrize("facts", [{"purpose": "rule"}, {"purpose": None}, {"purpose": []}, {"purpose": {"a": 1}}])
def test_a_purpose_is_needed(job, facts):
    hello = job.servers.hello(Purpose.TRAIN, 0, 9, **facts)
    job.breaks("must give a name and a purpose", job.servers.connect(), hello, incarnation=9)


def test_another_model_is_refused_and_may_not_go_on(job):
    peer = job.servers.connect()
    before = job.servers.state()
    hello = job.servers.hello(Purpose.TRAIN, 0, 9)
    hello.digest += 1
    reply = job.servers.send(0, peer, hello)
    assert reply.kind is Kind.REFUSED
    assert reply.json() == {"code": "model", "reason": "the model of train-0 differs from the one that this job trains"}
    assert job.servers.state() == before
    job.breaks("NEXT before HELLO", peer, Message(Kind.NEXT), incarnation=9)


def test_a_second_hello_breaks_the_protocol(job):
    job.breaks("a second HELLO", job.chief[0], job.servers.hello(Purpose.TRAIN, 0, 5))


@pytest.mark.parametrize("ps", [0, 1])
def test_an_old_life_is_refused(job, ps):
    hello = job.servers.hello(Purpose.TRAIN, 1, 4)
    job.refuses("incarnation 4 of", job.servers.connect(), hello, member=1, incarnation=4, ps=ps)


def test_who_is_no_replica_may_not_train(job):
    hello = job.servers.hello(Purpose.TRAIN, NO_MEMBER, 5)
    job.breaks("only a training replica may train", job.servers.connect(), hello, member=NO_MEMBER)


# who may say what


def test_another_members_name_breaks_the_protocol(job):
    job.breaks("speaks as replica 0", job.worker[0], Message(Kind.NEXT), member=0)


def test_another_life_breaks_the_protocol(job):
    job.breaks("speaks as replica 1, incarnation 6", job.worker[0], Message(Kind.NEXT), member=1, incarnation=6)


def test_another_model_breaks_the_protocol(job):
    message = job.servers.signed(Message(Kind.NEXT), 0, 5)
    message.digest ^= 1
    before = job.servers.state()
    with pytest.raises(ProtocolError, match="speaks of another model"):
        job.servers.send(0, job.chief[0], message)
    assert job.servers.state() == before


CHIEF_ONLY = [
    Kind.OPEN,
    Kind.INITIALIZE,
    Kind.RESTORE,
    Kind.AWAIT_CUT,
    Kind.REQUEST_CUT,
    Kind.SNAPSHOT,
    Kind.RESUME,
    Kind.WRITE,
    Kind.COMMITTED,
    Kind.FINISH,
]


@pytest.mark.parametrize("kind", CHIEF_ONLY)
def test_some_things_only_the_chief_may_say(job, kind):
    job.breaks(f"{kind.name} is for the chief alone", job.worker[0], Message(kind), member=1)


@pytest.mark.parametrize("kind", [Kind.NEXT, Kind.STOP, Kind.FETCH, Kind.PUSH])
def test_some_things_only_who_trains_may_say(job, kind):
    job.breaks(f"{kind.name} is for training replicas alone", job.saver[0], Message(kind))


@pytest.mark.parametrize("kind", [Kind.NEXT, Kind.STOP, Kind.FETCH, Kind.OPEN, Kind.AWAIT_CUT, Kind.RESUME, Kind.WATCH])
def test_only_ps_0_speaks_for_the_job(job, kind):
    job.breaks(f"this ps does not take {kind.name}", job.chief[1], Message(kind), ps=1)


# what is asked at a wrong time


def test_a_push_needs_a_ticket(job):
    body = job.servers.push_body(0, VALUES)
    job.refuses("has no ticket", job.worker[0], Message(Kind.PUSH, sequence=1, body=body), member=1)


def test_a_push_out_of_turn_is_refused(job):
    body = job.servers.push_body(0, VALUES)
    job.refuses("out of turn", job.chief[0], Message(Kind.PUSH, sequence=2, body=body))


def test_a_life_that_is_over_pushes_no_more(job):
    job.servers.deliver(0, job.servers.desk.lost(0, 5))
    body = job.servers.push_body(0, VALUES)
    job.refuses("not a member of this job", job.chief[0], Message(Kind.PUSH, sequence=1, body=body))


@pytest.mark.parametrize("change", [-1, 1, -1000])
@pytest.mark.parametrize("ps", [0, 1])
def test_a_push_has_its_size(job, ps, change):
    size = job.servers.handlers[ps].shard.push_layout.nbytes()
    body = bytes(max(0, size + change))
    job.breaks("too long" if change > 0 else "expected a push of", job.chief[ps], Message(Kind.PUSH, body=body), ps=ps)


def test_first_values_have_their_size(job):
    job.breaks("expected .* bytes, got 3", job.saver[0], Message(Kind.INITIALIZE, body=b"abc"))


def test_values_are_not_given_twice(job):
    before = job.servers.state()
    body = bytes(job.servers.layouts[0].nbytes)
    assert job.say(job.saver[0], Message(Kind.INITIALIZE, body=body)).kind is Kind.DONE
    assert job.servers.state() == before


@pytest.mark.parametrize("ps", [0, 1])
def test_a_restore_comes_before_training(job, saved_as, ps):
    job.refuses("only at the start", job.saver[ps], Message(Kind.RESTORE, step=3), ps=ps)


def test_a_pull_needs_values(servers_of):
    job = Job(servers_of)
    job.refuses("no values yet", job.chief[0], Message(Kind.PULL))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (None, "checkpoint of step 7: there is none"),
        ({}, "not the facts of a cut"),
        ({"step": 7, "lives": [[1, 2]], "input": {}, "num_examples": 0, "log": [0]}, "not the facts of a cut"),
        ({"step": 7, "lives": [], "input": {}, "num_examples": 0, "log": [0, [9, 0, 0, 1]]}, "not the facts of a cut"),
        (
            {"step": 7, "lives": [], "input": {"num_records": 1000}, "num_examples": 0, "log": [0]},
            "not the facts of an input",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_restored_is_refused(servers_of, saved_as, facts, reason):
    job = Job(servers_of, saved={} if facts is None else {7: saved_as(VALUES, facts)})
    reply = job.say(job.saver[0], Message(Kind.RESTORE, step=7))
    assert (reply.kind, reply.json()["code"]) == (Kind.REFUSED, "checkpoint")
    assert reason in reply.json()["reason"]
    job.open()


def test_a_cut_is_copied_when_it_is_due(job):
    cut = job.servers.job.cut().to_facts()
    job.refuses("no cut of step 0 is due", job.saver[0], Message.of(Kind.SNAPSHOT, cut))


@pytest.mark.parametrize("ps", [0, 1])
def test_what_is_written_was_copied(job, ps):
    job.refuses("there is no copy of step 3", job.saver[ps], Message(Kind.WRITE, step=3), ps=ps)


def test_the_end_waits_for_the_final_cut(job):
    job.refuses("cannot finish yet", job.saver[0], Message(Kind.FINISH))


def test_an_input_that_can_be_split_is_not_fetched(job):
    job.breaks("has no such batch", job.chief[0], Message(Kind.FETCH, step=0))


@pytest.mark.parametrize("index", [-1, -(2**63)])
def test_no_stream_has_a_negative_batch(servers_of, index):
    job = Job(servers_of, input_spec=InputSpec(None)).open()
    job.breaks("has no such batch", job.chief[0], Message(Kind.FETCH, step=index))


def test_only_batches_that_were_handed_out_are_fetched(servers_of):
    job = Job(servers_of, input_spec=InputSpec(None, split_batches=2)).open()
    job.refuses("batch 2 of the input is not for", job.chief[0], Message(Kind.FETCH, step=2))
    assert job.servers.stream.wanted == -1


# bodies

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


GOOD_CUT = {"step": 0, "lives": [[0, 5, 0]], "input": {}, "num_examples": 0}
BAD_PARTS = [None, True, "x", -1, 1.5, [], {}, [[]], [[1]], [["a", 1, 1]], [[0, -1, 0]], [[0, 1, None]], {"a": 1}]


BAD_FACTS = [
    (name, value)
    for name, good in GOOD_CUT.items()
    for value in BAD_PARTS
    if type(value) is not type(good) or value not in ([], {}, {"a": 1})
]


@pytest.mark.parametrize(("name", "value"), BAD_FACTS)
@pytest.mark.parametrize("ps", [0, 1])
def test_facts_of_a_wrong_type_are_no_cut(job, name, value, ps):
    body = json.dumps(GOOD_CUT | {name: value}).encode()
    job.breaks("not the facts of a cut", job.saver[ps], Message(Kind.SNAPSHOT, body=body), ps=ps)


@pytest.mark.parametrize("name", GOOD_CUT)
def test_a_missing_fact_is_no_cut(job, name):
    facts = {key: value for key, value in GOOD_CUT.items() if key != name}
    job.breaks("not the facts of a cut", job.saver[0], Message.of(Kind.SNAPSHOT, facts))


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
FACTS = st.dictionaries(st.sampled_from([*GOOD_CUT, "reason", "name", "token", "purpose", "job_id"]), WORDS)
BODIES = st.binary(max_size=200) | FACTS.map(lambda facts: json.dumps(facts).encode())
NUMBERS = st.sampled_from([0, 1, 2, 5, 6, 2**31, 2**32 - 1])
BIG = st.sampled_from([0, 1, 2, 3, 2**63 - 1])


@settings(max_examples=200)
@given(data=st.data())
def test_garbage_ends_a_peer_and_nothing_else(servers_of, data):
    """Each message is answered, held or refused; a refusal changes nothing, and no other error comes out."""
    input_spec = data.draw(st.sampled_from([InputSpec(None), InputSpec(30)]))
    job = Job(servers_of, input_spec=input_spec)
    if data.draw(st.booleans()):
        job.open()
    peers = [("saver", 0), ("chief", 0), ("worker", 1), ("watcher", NO_MEMBER), ("stranger", 0)]
    for _ in range(data.draw(st.integers(1, 6))):
        ps = data.draw(st.sampled_from([0, 0, 0, 1]))
        who, member = data.draw(st.sampled_from(peers))
        if who == "watcher":
            ps, peer = 0, job.watcher
        else:
            peer = job.servers.connect() if who == "stranger" else getattr(job, who)[ps]
        if (ps, peer) in job.servers.inbox or not is_free(job, ps, peer):
            continue
        message = Message(
            data.draw(st.sampled_from([k for k in Kind if not k.is_reply])),
            data.draw(st.just(member) | NUMBERS),
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


def is_free(job: Job, ps: int, peer: int) -> bool:
    """Whether a transport would let this peer say something: it is not waiting for an answer."""
    desk, handler = job.servers.desk, job.servers.handlers[ps]
    waiting = {*desk._waiting.values(), *desk._fetching, *desk._watching, desk._saver} if ps == 0 else set()
    return peer not in waiting and (handler._writing is None or handler._writing[1] != peer)


# what is said to have been decided


@pytest.mark.parametrize(
    ("start", "entry", "reason"),
    [
        (0, Entry(Decision.APPLY, 1, 5, 1), "push 1 of replica 1 was decided on but never came here"),
        (0, Entry.close(2), "a round of 2 gradients is closed, but 0 are summed here"),
        (0, Entry.close(0), "a round of 0 gradients is closed"),
        (1, Entry(Decision.DROP, 1, 5, 1), "entries from 1 on came to a shard that has heard of the first 0"),
    ],
)
def test_a_log_must_fit_what_came_before_it(job, start, entry, reason):
    log = EntryLog(start)
    log.extend([entry])
    settled = job.servers.handlers[1].shard.num_settled
    job.refuses(reason, job.worker[1], Message(Kind.PULL, body=log.encode()), member=1, ps=1)
    assert job.servers.handlers[1].shard.num_settled == settled
