"""What a ps refuses, and that it changes nothing."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import MAX_JSON_BYTES, NO_REPLICA, Kind, Message, Purpose
from psflow.ps_runtime.specs.input import InputSpec
from tests.ps_runtime.server.started_job import VALUES, StartedJob

# who is let in


@pytest.mark.parametrize("kind", [k for k in Kind if not k.is_reply and k is not Kind.HELLO])
def test_nothing_goes_before_hello(job, kind):
    job.breaks(f"{kind.name} before HELLO", job.servers.connect(), Message(kind))


def test_only_hello_has_a_body_before_hello(job):
    peer = job.servers.connect()
    handler = job.servers.handlers[0]
    assert [handler.max_body_bytes(peer, kind) > 0 for kind in (Kind.HELLO, Kind.PUSH, Kind.INITIALIZE)] == [1, 0, 0]


def test_a_peer_may_send_no_more_than_its_message_can_hold(job):
    handler = job.servers.handlers[1]
    shard, peer = handler.shard, job.chief[1]
    sizes = {
        Kind.PUSH: shard.max_push_nbytes,
        Kind.PULL_ROWS: shard.max_rows_nbytes + MAX_JSON_BYTES,
        Kind.INITIALIZE: shard.layout.nbytes,
        Kind.SNAPSHOT: MAX_JSON_BYTES,
        Kind.PULL: MAX_JSON_BYTES,
        Kind.WRITE: 4096,
    }
    assert {kind: handler.max_body_bytes(peer, kind) for kind in sizes} == sizes


@pytest.mark.parametrize(
    "facts",
    [{"token": "another"}, {"token": ""}, {"token": None}, {"token": 7}, {"token": "\ud800"}, {"job_id": "another"}],
)
def test_a_peer_that_does_not_know_the_job_is_not_let_in(job, facts):
    hello = job.servers.hello(Purpose.TRAIN, 0, 9, **facts)
    job.breaks("its job id or token does not belong to this job", job.servers.connect(), hello, incarnation=9)


FLOATS = {"gradients": "float32", "parameters": "float32"}


@pytest.mark.parametrize(
    "facts",
    [
        *({"purpose": value} for value in ("rule", None, [], {"a": 1})),
        *({"wire": value} for value in (None, [], "float32", {}, {"gradients": "bfloat16"})),
        *({"wire": FLOATS | {"parameters": value}} for value in ("float16", None, [], 32)),
    ],
)
def test_a_purpose_and_a_wire_format_are_needed(job, facts):
    hello = job.servers.hello(Purpose.TRAIN, 0, 9, **facts)
    job.breaks("must give a name, a purpose and a wire format", job.servers.connect(), hello, incarnation=9)


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


def test_a_wire_format_that_is_not_the_one_of_the_job_is_refused(job):
    before = job.servers.state()
    hello = job.servers.hello(Purpose.TRAIN, 0, 9, wire=FLOATS | {"gradients": "bfloat16"})
    reply = job.servers.send(0, job.servers.connect(), hello)
    assert reply.json()["code"] == "wire"
    assert "gradients='bfloat16', parameters='float32'), but this job uses WireFormat(" in reply.json()["reason"]
    assert job.servers.state() == before


def test_a_second_hello_breaks_the_protocol(job):
    job.breaks("it sent a second HELLO", job.chief[0], job.servers.hello(Purpose.TRAIN, 0, 5))


@pytest.mark.parametrize("ps", [0, 1])
def test_an_old_life_is_refused(job, ps):
    hello = job.servers.hello(Purpose.TRAIN, 1, 4)
    job.refuses("incarnation 4 of", job.servers.connect(), hello, replica=1, incarnation=4, ps=ps)


@pytest.mark.parametrize("purpose", [Purpose.TRAIN, Purpose.SAVE, Purpose.WATCH])
@pytest.mark.parametrize(("ps", "replica"), [(0, 8), (1, 8), (0, NO_REPLICA - 1)])
def test_a_replica_that_the_job_does_not_have_is_not_let_in(job, ps, replica, purpose):
    hello = job.servers.hello(purpose, replica, 5)
    words = rf"it claims to be worker-{replica - 1}, but this job has 8 replicas"
    job.breaks(words, job.servers.connect(), hello, replica=replica, ps=ps)


def test_who_is_no_replica_may_not_train(job):
    hello = job.servers.hello(Purpose.TRAIN, NO_REPLICA, 5)
    job.breaks("only a training replica may train", job.servers.connect(), hello, replica=NO_REPLICA)


# who may say what


def test_another_replicas_name_breaks_the_protocol(job):
    job.breaks("its message claims to come from chief-0", job.worker[0], Message(Kind.NEXT), replica=0)


def test_another_life_breaks_the_protocol(job):
    job.breaks(
        "its message claims to come from worker-0, incarnation 6",
        job.worker[0],
        Message(Kind.NEXT),
        replica=1,
        incarnation=6,
    )


def test_a_worker_is_no_role_that_trains_nothing(job):
    job.breaks(
        "its message claims to come from a role that trains nothing, incarnation 5",
        job.worker[0],
        Message(Kind.NEXT),
        replica=NO_REPLICA,
    )


@pytest.mark.parametrize("difference", [1, -1])
def test_another_model_breaks_the_protocol(job, difference):
    message = job.servers.signed(Message(Kind.NEXT), 0, 5)
    message.digest += difference
    before = job.servers.state()
    with pytest.raises(ProtocolError, match="its message has the digest of another model"):
        job.servers.send(0, job.chief[0], message)
    assert job.servers.state() == before


CHIEF_ONLY = [
    Kind.JOB_STATE,
    Kind.OPEN,
    Kind.INITIALIZE,
    Kind.RESTORE,
    Kind.AWAIT_SNAPSHOT,
    Kind.REQUEST_SNAPSHOT,
    Kind.SNAPSHOT,
    Kind.RESUME,
    Kind.WRITE,
    Kind.COMMITTED,
    Kind.FINISH,
]


@pytest.mark.parametrize("kind", CHIEF_ONLY)
def test_some_things_only_the_chief_may_say(job, kind):
    job.breaks(f"only the chief may send {kind.name}", job.worker[0], Message(kind), replica=1)


@pytest.mark.parametrize("kind", [Kind.NEXT, Kind.STOP, Kind.FETCH, Kind.INPUT_ENDED, Kind.PUSH])
def test_some_things_only_who_trains_may_say(job, kind):
    job.breaks(f"only training replicas may send {kind.name}", job.saver[0], Message(kind))


ASKED_OF_PS_0 = [
    Kind.JOB_STATE,
    Kind.NEXT,
    Kind.STOP,
    Kind.FETCH,
    Kind.INPUT_ENDED,
    Kind.OPEN,
    Kind.AWAIT_SNAPSHOT,
    Kind.RESUME,
    Kind.WATCH,
]


@pytest.mark.parametrize("kind", ASKED_OF_PS_0)
def test_only_ps_0_speaks_for_the_job(job, kind):
    job.breaks(f"this ps does not accept {kind.name}", job.chief[1], Message(kind), ps=1)


# what is asked at a wrong time


def test_a_push_needs_a_ticket(job):
    body = job.servers.push_body(0, VALUES)
    job.refuses("has no ticket", job.worker[0], Message(Kind.PUSH, sequence=1, body=body), replica=1)


def test_a_push_out_of_turn_is_refused(job):
    body = job.servers.push_body(0, VALUES)
    job.refuses("out of turn", job.chief[0], Message(Kind.PUSH, sequence=2, body=body))


def test_a_life_that_is_over_pushes_no_more(job):
    job.servers.deliver(0, job.servers.job_requests.lost(0, 5))
    body = job.servers.push_body(0, VALUES)
    job.refuses("not part of this job", job.chief[0], Message(Kind.PUSH, sequence=1, body=body))


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
    job = StartedJob(servers_of)
    job.refuses("no values yet", job.chief[0], Message(Kind.PULL))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (None, "checkpoint of step 7: there is none"),
        ({}, "not the facts of a snapshot"),
        ({"step": 7, "sequences": [[1, 2]], "input": {}, "num_examples": 0, "log": [0]}, "not the facts of a snapshot"),
        (
            {"step": 7, "sequences": [], "input": {}, "num_examples": 0, "log": [0, [9, 0, 0, 1]]},
            "not the facts of a snapshot",
        ),
        (
            {"step": 7, "sequences": [], "input": {"num_records": 1000}, "num_examples": 0, "log": [0]},
            "not the facts of an input",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_restored_is_refused(servers_of, saved_as, facts, reason):
    job = StartedJob(servers_of, saved={} if facts is None else {7: saved_as(VALUES, facts)})
    reply = job.say(job.saver[0], Message(Kind.RESTORE, step=7))
    assert (reply.kind, reply.json()["code"]) == (Kind.REFUSED, "checkpoint")
    assert reason in reply.json()["reason"]
    job.open()


def test_a_cut_is_copied_when_it_is_due(job):
    snapshot = job.servers.job.snapshot().to_facts()
    job.refuses("no snapshot of step 0 is due", job.saver[0], Message.of(Kind.SNAPSHOT, snapshot))


@pytest.mark.parametrize("step", [0, 3])
def test_a_cut_that_nobody_announced_is_not_resumed_from(job, step):
    job.refuses(f"no snapshot of step {step} is under way", job.saver[0], Message(Kind.RESUME, step=step))


@pytest.mark.parametrize("ps", [0, 1])
def test_what_is_written_was_copied(job, ps):
    job.refuses("there is no copy of step 3", job.saver[ps], Message(Kind.WRITE, step=3), ps=ps)


def test_the_end_waits_for_the_final_cut(job):
    job.refuses("cannot finish yet", job.saver[0], Message(Kind.FINISH))


def test_an_input_that_can_be_split_is_not_fetched(job):
    job.breaks("has no such batch", job.chief[0], Message(Kind.FETCH, step=0))


@pytest.mark.parametrize("index", [-1, -(2**63)])
def test_no_stream_has_a_negative_batch(servers_of, index):
    job = StartedJob(servers_of, input_spec=InputSpec(None)).open()
    job.breaks("has no such batch", job.chief[0], Message(Kind.FETCH, step=index))


OWN_STREAM = InputSpec(None, each_worker_reads_all=True)


@pytest.mark.parametrize(("spec", "step"), [(InputSpec(9), 3), (InputSpec(None), 3), (OWN_STREAM, -1)])
def test_only_a_stream_of_its_own_ends_for_a_replica(servers_of, spec, step):
    job = StartedJob(servers_of, input_spec=spec).open()
    words = f"INPUT_ENDED after {step} batches, but it reads no stream of this job for itself"
    job.breaks(words, job.chief[0], Message(Kind.INPUT_ENDED, step=step))


def test_a_stream_of_its_own_is_not_fetched(servers_of):
    job = StartedJob(servers_of, input_spec=OWN_STREAM).open()
    job.breaks("has no such batch", job.chief[0], Message(Kind.FETCH, step=0))


def test_only_batches_that_were_handed_out_are_fetched(servers_of):
    job = StartedJob(servers_of, input_spec=InputSpec(None, split_batches=2)).open()
    job.refuses("batch 2 of the input is not for", job.chief[0], Message(Kind.FETCH, step=2))
    assert job.servers.stream.wanted == -1
