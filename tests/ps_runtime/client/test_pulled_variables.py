"""Variables of ps that share their memory, and of ps that do not: who is asked, and what comes of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from psflow.ps_runtime.client.pulls import PulledVariables
from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import NO_BODY, Kind, Message
from psflow.ps_runtime.protocol.payloads import GRANT, PushLayout
from psflow.ps_runtime.protocol.wire_codec import WireCodec
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec
from psflow.ps_runtime.specs.wire_format import EXACT

MODEL = ModelSpec((VariableSpec("left", (3,), "float32", None), VariableSpec("right", (2,), "float32", None)), ())
LAYOUTS = place(MODEL, 2)
LOG = b"what was decided"


class SharedArena:
    """Bytes that can be read without asking: all of them the number of the ps."""

    def __init__(self, index: int) -> None:
        self.version = 10 + index
        self.bytes = np.frombuffer(numbers(index), np.uint8)

    def read(self, into):
        into[:] = self.bytes
        return self.version


class Connected(NamedTuple):
    arena: SharedArena | None
    is_direct: bool = False


class FakeShard:
    """Answers each pull, and remembers it."""

    def __init__(self, index: int, *, is_shared: bool) -> None:
        self.index = index
        self.connection = Connected(SharedArena(index) if is_shared else None)
        self.asked: list[Message] = []

    def send(self, message):
        self.asked.append(message)

    def receive(self, what, timeout_secs, into=None):
        if into is not None:
            into[:] = numbers(self.index)
        return Message(Kind.PARAMETERS, version=10 + self.index, body=into or b"")


def numbers(index):
    return np.full(LAYOUTS[index].nbytes // 4, index, np.float32).tobytes()


def pulled(shards, **told):
    codecs = [WireCodec(EXACT, layout, PushLayout.of(layout, 0)) for layout in LAYOUTS]
    variables = PulledVariables(shards, MODEL, LAYOUTS, codecs, in_place=False)
    variables.start(LOG, **told)
    variables.finish()
    assert variables.versions == [10, 11]
    assert sorted({value for name in ("left", "right") for value in variables.variables[name].tolist()}) == [0.0, 1.0]
    return [[(message.kind, message.flags, message.body) for message in shard.asked] for shard in shards]


def test_only_the_other_ps_are_asked_to_carry_out_what_was_decided():
    assert pulled([FakeShard(i, is_shared=True) for i in range(2)]) == [[], [(Kind.PULL, NO_BODY, LOG)]]


def test_nobody_is_asked_who_is_told_and_can_be_read():
    assert pulled([FakeShard(i, is_shared=True) for i in range(2)], has_log=True) == [[], []]


@pytest.mark.parametrize("told", [{}, {"has_log": True}])
def test_whose_memory_is_not_shared_is_asked_for_its_variables(told):
    expected = [[(Kind.PULL, 0, b"")], [(Kind.PULL, 0, LOG)]]
    assert pulled([FakeShard(i, is_shared=False) for i in range(2)], **told) == expected
    assert pulled([FakeShard(0, is_shared=True), FakeShard(1, is_shared=False)], **told) == [[], expected[1]]


@pytest.mark.parametrize(("is_shared", "is_direct"), [(False, False), (True, False), (False, True)])
def test_variables_come_with_a_ticket_where_they_would_be_sent(is_shared, is_direct):
    shard = FakeShard(0, is_shared=is_shared)
    shard.connection = shard.connection._replace(is_direct=is_direct)
    [layout] = place(MODEL, 1)
    codec = WireCodec(EXACT, layout, PushLayout.of(layout, 0))
    variables = PulledVariables([shard], MODEL, [layout], [codec], in_place=False)
    assert variables.may_come_with_ticket == (not is_shared and not is_direct)


@pytest.mark.parametrize("surplus", [-1, 1])
@pytest.mark.parametrize("num_ps", [1, 2])
def test_parameters_with_a_ticket_that_are_not_expected_are_refused(num_ps, surplus):
    layouts = place(MODEL, num_ps)
    codecs = [WireCodec(EXACT, layout, PushLayout.of(layout, 0)) for layout in layouts]
    shards = [FakeShard(i, is_shared=False) for i in range(num_ps)]
    variables = PulledVariables(shards, MODEL, layouts, codecs, in_place=False)
    nbytes = GRANT.size + layouts[0].nbytes
    expected = nbytes if num_ps == 1 else 0
    words = f"^ps-0 broke the protocol: expected {expected} bytes as a grant with parameters, got {nbytes + surplus}$"
    with pytest.raises(ProtocolError, match=words):
        variables.carry(Message(Kind.GRANT, body=bytes(nbytes + surplus)))
