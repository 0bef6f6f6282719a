"""A push in the memory of its replica: held there, copied in time, and possible only where nobody is to answer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.protocol.payloads import GRANT, PushBuffer
from psflow.ps_runtime.protocol.wire_codec import WireCodec
from psflow.ps_runtime.specs.wire_format import WireFormat
from tests.ps_runtime.server.started_job import VALUES

NO_LOG = b""


def deposit(job, number: float) -> None:
    """Deposit the first push of the chief at ps-1."""
    gradients = {name: np.full_like(value, number) for name, value in VALUES.items()}
    push = Message(Kind.PUSH, sequence=1, body=job.servers.push_body(1, gradients))
    job.servers.deposit(1, job.chief[1], job.servers.signed(push, 0, 5))


def decide(job) -> bytes:
    """Push to ps-0; return the log that says so."""
    body = job.servers.push_body(0, {name: np.zeros_like(value) for name, value in VALUES.items()})
    reply = job.say(job.chief[0], Message(Kind.PUSH, sequence=1, body=body))
    return bytes(reply.body[GRANT.size :])


def forward(job, log: bytes, replica: int) -> None:
    peer = (job.chief, job.worker)[replica][1]
    assert job.say(peer, Message(Kind.PULL, body=log), replica=replica, ps=1).kind is Kind.PARAMETERS


def values_of(job) -> list[np.ndarray]:
    """Return the values of the pieces on ps-1."""
    pieces = job.servers.layouts[1].pieces
    variables = job.servers.variables()
    return [variables[p.variable][slice(p.row_start, p.row_stop) if p.shape else ...] for p in pieces]


@pytest.mark.parametrize("replica", [0, 1])
def test_a_deposited_push_is_applied_as_soon_as_anyone_forwards_its_decision(job, replica):
    deposit(job, 3.0)
    log = decide(job)
    assert (job.servers.handlers[1].shard.version, log == NO_LOG) == (0, False)
    forward(job, log, replica)
    assert job.servers.handlers[1].shard.version == 1
    for values in values_of(job):
        np.testing.assert_array_equal(values, -2.0)


def test_a_push_without_a_decision_is_kept_when_its_memory_goes_back(job):
    deposit(job, 3.0)
    forward(job, NO_LOG, 0)
    assert job.servers.handlers[1].shard.statistics()["held_pushes"] == 1
    forward(job, decide(job), 0)
    for values in values_of(job):
        np.testing.assert_array_equal(values, -2.0)


def test_a_push_is_kept_when_its_connection_ends(job):
    deposit(job, 3.0)
    job.servers.disconnect(1, job.chief[1])
    forward(job, decide(job), 1)
    for values in values_of(job):
        np.testing.assert_array_equal(values, -2.0)


def test_a_narrow_push_is_copied_because_the_next_one_is_widened_in_the_same_memory(job):
    shard, handler = job.servers.handlers[1].shard, job.servers.handlers[1]
    codec, codec_of_replicas = (
        WireCodec(WireFormat("bfloat16", "bfloat16"), shard.layout, shard.push_layout) for _ in range(2)
    )
    handler._codec_of |= {job.chief[1]: codec, job.worker[1]: codec}
    for number, (peer, replica) in enumerate([(job.chief[1], 0), (job.worker[1], 1)]):
        gradients = {name: np.full_like(value, 1.0 + 15.0 * number) for name, value in VALUES.items()}
        push = PushBuffer(shard.push_layout, job.servers.push_body(1, gradients))
        body = bytes(codec_of_replicas.encode_push(push))
        job.servers.deposit(1, peer, job.servers.signed(Message(Kind.PUSH, sequence=1, body=body), replica, 5))
    forward(job, decide(job), 0)
    for values in values_of(job):
        np.testing.assert_array_equal(values, 0.0)


def test_ps_0_takes_no_deposit_because_it_answers_each_push(job):
    before = job.servers.state()
    push = Message(Kind.PUSH, sequence=1, body=job.servers.push_body(0, VALUES))
    message = dataclasses.replace(job.servers.signed(push, 0, 5), is_deposited=True)
    with pytest.raises(ProtocolError, match="this ps does not accept PUSH as a deposit"):
        job.servers.handlers[0].handle(job.chief[0], message)
    assert job.servers.state() == before


@pytest.mark.parametrize("kind", [Kind.PULL, Kind.PULL_ROWS, Kind.LEAVE, Kind.STATISTICS])
def test_nothing_but_a_push_is_deposited(job, kind):
    message = dataclasses.replace(job.servers.signed(Message(kind), 0, 5), is_deposited=True)
    with pytest.raises(ProtocolError, match=f"this ps does not accept {kind.name} as a deposit"):
        job.servers.handlers[1].handle(job.chief[1], message)
