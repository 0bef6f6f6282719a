"""A job of two ps and all kinds of peers, to which tests say what they like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.protocol.message import NO_REPLICA, Kind, Message, Purpose
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.variables import ModelSpec, VariableSpec

MODEL = ModelSpec(
    (VariableSpec("w", (2, 3), "float32", 0), VariableSpec("b", (3,), "float32", 0)),
    (GradientDescent(learning_rate=1.0).config(),),
)
VALUES = {v.name: np.ones(v.shape, v.dtype) for v in MODEL.variables}


class StartedJob:
    """Two ps, a chief that saves, and two replicas that train: chief 0 holds a ticket, worker 1 has joined."""

    def __init__(self, servers_of: Any, saved: Any = None, input_spec: InputSpec | None = None) -> None:
        self.servers = servers_of(MODEL, 2, input_spec, saved=saved, num_replicas=8)
        self.saver = [self.join(ps, Purpose.SAVE, 0) for ps in (0, 1)]
        self.chief = [self.join(ps, Purpose.TRAIN, 0) for ps in (0, 1)]
        self.worker = [self.join(ps, Purpose.TRAIN, 1) for ps in (0, 1)]
        self.watcher = self.join(0, Purpose.WATCH, NO_REPLICA)

    def join(self, ps: int, purpose: Purpose, replica: int) -> int:
        peer = self.servers.connect()
        incarnation = 0 if replica == NO_REPLICA else 5
        reply = self.servers.send(ps, peer, self.servers.hello(purpose, replica, incarnation))
        assert (reply.kind, reply.sequence) == (Kind.DONE, 0), "it has pushed nothing"
        return peer

    def open(self) -> StartedJob:
        for ps in (0, 1):
            arena = self.servers.arena_of(ps, VALUES)
            assert self.say(self.saver[ps], Message(Kind.INITIALIZE, body=arena.data), ps=ps).kind is Kind.DONE
        assert self.say(self.saver[0], Message(Kind.OPEN)).kind is Kind.DONE
        assert self.say(self.chief[0], Message(Kind.NEXT)).kind is Kind.GRANT
        return self

    def say(self, peer: int, message: Message, replica: int = 0, ps: int = 0, incarnation: int = 5) -> Message | None:
        return self.servers.send(ps, peer, self.servers.signed(message, replica, incarnation))

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
