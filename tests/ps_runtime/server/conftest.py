"""Some ps without a transport: messages in, replies out, checkpoints in memory."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.errors import CheckpointError, ProtocolError
from psflow.ps_runtime.protocol.message import NO_REPLICA, Kind, Message, Purpose, encode_header, whole_body
from psflow.ps_runtime.protocol.payloads import PushBuffer
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec
from psflow.ps_runtime.specs.wire_format import EXACT
from tests.ps_runtime.rules import rules_of
from tests.ps_runtime.server.started_job import StartedJob

TOKEN = "a secret"


class Saved:
    """A checkpoint in memory: whole variables and the facts of its snapshot."""

    def __init__(self, variables: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        self.variables = dict(variables)
        self.facts = facts


class Storage:
    def __init__(self, saved: dict[int, Saved]) -> None:
        self.saved = saved
        self.writing: list[int] = []

    def load(self, step: int, shard: Shard) -> Mapping[str, Any]:
        if step not in self.saved:
            raise CheckpointError(f"of step {step}", "there is none")
        arena = shard.snapshot_arrays.arena
        for piece, view in zip(shard.layout.pieces, piece_views(shard.layout, arena), strict=True):
            whole = self.saved[step].variables[piece.variable]
            view[...] = whole[piece.row_start : piece.row_stop] if piece.shape else whole
        return self.saved[step].facts

    def write(self, step: int, shard: Shard) -> None:
        self.writing.append(step)


class Stream:
    def __init__(self) -> None:
        self.wanted = -1

    def want(self, index: int) -> None:
        self.wanted = max(self.wanted, index)


class Servers:
    """All ps of a job.

    `send` gives the reply that is due at once, if any; what comes later lies in `inbox` by (ps, connection).
    """

    def __init__(self, model: ModelSpec, num_ps: int, job: Job, saved: dict[int, Saved], *, is_stream: bool) -> None:
        self.model = model
        self.layouts = place(model, num_ps)
        self.key = JobKey("job", TOKEN, model.digest, 8)
        self.stream = Stream() if is_stream else None
        self.job = job
        shards = [Shard(layout, rules_of(model), model.tables, num_ps) for layout in self.layouts]
        self.job_requests = JobRequests(job, self.stream, shards[0])
        self.handlers = []
        for index, shard in enumerate(shards):
            self.handlers.append(PsHandler(self.key, shard, Storage(saved), self.job_requests if index == 0 else None))
        self.inbox: dict[tuple[int, int], Message] = {}
        self._deposits: dict[tuple[int, int], Message] = {}
        """By (ps, connection), not taken yet."""
        self._lent: dict[tuple[int, int], bytearray] = {}
        """Bodies of deposits, which stay until the next request of that connection is answered."""
        self._numbers = itertools.count(1)

    def connect(self) -> int:
        return next(self._numbers)

    def deposit(self, ps: int, peer: int, message: Message) -> None:
        body = self._lent[ps, peer] = bytearray(memoryview(message.body).cast("B"))
        self._deposits[ps, peer] = dataclasses.replace(message, body=memoryview(body), is_deposited=True)

    def _take_deposits(self, ps: int) -> None:
        for key in [key for key in self._deposits if key[0] == ps]:
            replies = self.handlers[ps].handle(key[1], self._deposits.pop(key))
            self.deliver(ps, [reply for reply in replies if reply[0] != key[1]])

    def _reclaim(self, ps: int, peer: int) -> None:
        body = self._lent.pop((ps, peer), bytearray())
        body[:] = b"\xff" * len(body)

    def send(self, ps: int, peer: int, message: Message) -> Message | None:
        self._take_deposits(ps)
        handler = self.handlers[ps]
        if len(memoryview(message.body).cast("B")) > handler.max_body_bytes(peer, message.kind):
            raise ProtocolError("peer", "too long")
        body = bytearray(memoryview(message.body).cast("B"))  # a handler may write to it, but not keep it
        self.deliver(ps, handler.handle(peer, message.with_body(memoryview(body))))
        body[:] = b"\xff" * len(body)
        self._reclaim(ps, peer)
        return self.inbox.pop((ps, peer), None)

    def deliver(self, ps: int, replies: Any) -> None:
        for peer, reply in replies:
            assert (ps, peer) not in self.inbox, "a second reply to one request"
            body = bytes(whole_body(reply))
            encode_header(reply, len(body))  # fails for numbers that cannot travel
            self.inbox[ps, peer] = reply.with_body(body)

    def disconnect(self, ps: int, peer: int) -> None:
        self._take_deposits(ps)
        self.inbox.pop((ps, peer), None)
        self.deliver(ps, self.handlers[ps].disconnected(peer))
        self._reclaim(ps, peer)
        self.inbox.pop((ps, peer), None)

    def hello(
        self, purpose: Purpose = Purpose.TRAIN, /, replica: int = NO_REPLICA, incarnation: int = 0, **facts: Any
    ) -> Message:
        known = {
            "job_id": "job",
            "token": TOKEN,
            "name": f"{purpose}-{replica}",
            "purpose": purpose,
            "wire": dataclasses.asdict(EXACT),
        }
        return self.signed(Message.of(Kind.HELLO, known | facts), replica, incarnation)

    def signed(self, message: Message, replica: int = NO_REPLICA, incarnation: int = 0) -> Message:
        return dataclasses.replace(message, replica=replica, incarnation=incarnation, digest=self.model.digest)

    def push_body(self, ps: int, gradients: Mapping[str, np.ndarray], num_examples: int = 1) -> Any:
        """Return the body of a push of learning rate 1."""
        push = PushBuffer.empty(self.handlers[ps].shard.push_layout)
        push.learning_rates[:] = 1.0
        push.num_examples = num_examples
        layout = self.layouts[ps]
        for index, view in enumerate(piece_views(layout, push.gradients)):
            piece = layout.pieces[index]
            if piece.variable in gradients:
                whole = gradients[piece.variable]
                view[...] = whole[piece.row_start : piece.row_stop] if piece.shape else whole
                push.mask[index] = 1
        return push.bytes.data

    def arena_of(self, ps: int, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the bytes of the arena of `ps` that holds `values`."""
        arena = np.zeros(self.layouts[ps].nbytes, np.uint8)
        for piece, view in zip(self.layouts[ps].pieces, piece_views(self.layouts[ps], arena), strict=True):
            whole = values[piece.variable]
            view[...] = whole[piece.row_start : piece.row_stop] if piece.shape else whole
        return arena

    def variables(self, *, of_snapshot: bool = False) -> dict[str, np.ndarray]:
        """Return whole variables, put together from all shards."""
        whole = {v.name: np.zeros(v.shape, v.dtype) for v in self.model.variables}
        for layout, handler in zip(self.layouts, self.handlers, strict=True):
            arrays = handler.shard.snapshot_arrays if of_snapshot else handler.shard.arrays
            for piece, view in zip(layout.pieces, piece_views(layout, arrays.arena), strict=True):
                whole[piece.variable][slice(piece.row_start, piece.row_stop) if piece.shape else ...] = view
        return whole

    def state(self) -> str:
        """Return all that a refused request must leave as it is."""
        parts = [
            repr(vars(self.job)),
            repr({k: v for k, v in vars(self.job_requests).items() if k not in ("job", "kinds")}),
        ]
        for handler in self.handlers:
            shard = handler.shard
            held = {key: (held.sequence, held.push.bytes.tobytes()) for key, held in shard._held.items()}
            parts.append(repr((shard.statistics(), shard.is_ready, shard.snapshot_step, held)))
            parts += [arrays.arena.tobytes().hex() for arrays in (shard.arrays, shard.snapshot_arrays)]
            parts.append(repr((handler._peers, handler._newest, handler._training, handler._writing, handler._written)))
            parts.append(repr((handler.is_finished, sorted(handler.left))))
        return "\n".join(parts)


@pytest.fixture(scope="session")
def servers_of() -> Callable[..., Servers]:
    def make(
        model: ModelSpec,
        num_ps: int = 1,
        input_spec: InputSpec | None = None,
        max_steps: int | None = None,
        save_steps: int | None = None,
        saved: dict[int, Saved] | None = None,
        num_replicas: int = 1,
    ) -> Servers:
        input_spec = input_spec or InputSpec(1000, batch_size=1, num_epochs=None)
        job = Job(input_spec, max_steps, save_steps, num_replicas=num_replicas, num_shards=num_ps)
        return Servers(model, num_ps, job, saved or {}, is_stream=input_spec.has_one_reader)

    return make


@pytest.fixture
def saved_as() -> type[Saved]:
    return Saved


@pytest.fixture
def job(servers_of: Callable[..., Any]) -> StartedJob:
    """A job that trains."""
    return StartedJob(servers_of).open()
