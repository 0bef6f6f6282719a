"""Ps in this process whose connections break on command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.client.shard_client import Connect, Identity, ShardClients, never_stop
from psflow.ps_runtime.errors import BrokenPeerError
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.in_process import InProcessServer
from tests.ps_runtime.rules import rules_of

SECS = 200.0


class Storage:
    """Writes at once; `error` is what it fails with."""

    def __init__(self) -> None:
        self.error: Refusal | None = None
        self.handler: PsHandler
        self.server: InProcessServer

    def load(self, step: int, shard: Shard) -> Mapping[str, Any]:
        raise OSError(f"no files of step {step}")

    def write(self, step: int, shard: Shard) -> None:
        facts = {"step": step, "shard": shard.layout.index}
        self.server.post(lambda: self.handler.written(step, self.error or facts))


class Stream:
    def want(self, index: int) -> None:
        pass


class FragileConnection(Connection):
    """Breaks at a request, before or after the ps has handled it; the ps may notice only later."""

    def __init__(self, inner: Connection, ps: Ps) -> None:
        self.inner = inner
        self.peer, self.transport = inner.peer, inner.transport
        self.ps = ps
        self.is_broken = False

    def send(self, message: Message) -> None:
        self.ps.kinds.append(message.kind)
        fault = self.ps.faults.pop(len(self.ps.kinds) - 1, None)
        if fault == "request":
            self.is_broken = True
            raise BrokenPeerError(self.peer, "the line went dead")
        self.inner.send(message)
        self.is_broken = fault == "reply"

    def receive(self, timeout_secs: float, into: memoryview | None = None) -> Message:
        if self.is_broken:
            raise BrokenPeerError(self.peer, "the line went dead")
        return self.inner.receive(timeout_secs, into)

    def shake_hands(self, timeout_secs: float) -> None:
        pass

    def share(self, timeout_secs: float) -> None:
        pass

    def outbox(self, nbytes: int) -> None:
        return None

    def keep(self) -> bool:
        return self.inner.keep()

    def statistics(self) -> dict[str, int | str]:
        return self.inner.statistics()

    def close(self) -> None:
        if self.is_broken and self.ps.notices_late:
            self.ps.unnoticed.append(self.inner)
        else:
            self.inner.close()


class Ps:
    """All ps of a job. `faults` maps the number of a request, over all connections, to what gets lost of it."""

    def __init__(self, model: ModelSpec, num_ps: int, job: Job, *, is_stream: bool) -> None:
        self.model = model
        self.faults: dict[int, str] = {}
        self.notices_late = False
        self.unnoticed: list[Connection] = []
        self.kinds: list[Kind] = []
        self.key = JobKey("job", "token", model.digest, 8)
        optimizers = rules_of(model)
        shards = [Shard(layout, optimizers, model.tables, num_ps) for layout in place(model, num_ps)]
        self.job_requests = JobRequests(job, Stream() if is_stream else None, shards[0])
        self.handlers, self.servers, self.storages = [], [], []
        for index, shard in enumerate(shards):
            storage = Storage()
            storage.handler = PsHandler(self.key, shard, storage, self.job_requests if index == 0 else None)
            storage.server = InProcessServer(storage.handler)
            self.storages.append(storage)
            self.handlers.append(storage.handler)
            self.servers.append(storage.server)

    @property
    def connect_functions(self) -> Sequence[Connect]:
        return [self._dial_of(index) for index in range(len(self.servers))]

    def _dial_of(self, index: int) -> Connect:
        return lambda timeout_secs: FragileConnection(self.servers[index].connect(f"ps-{index}"), self)

    def shards(
        self, purpose: Purpose = Purpose.TRAIN, replica: int = 0, check: Callable[[], None] = never_stop
    ) -> ShardClients:
        identity = Identity("job", "token", self.model.digest, f"{purpose}-{replica}", purpose, replica, 1)
        return ShardClients(self.connect_functions, identity, check, SECS)

    def slot(self, variable: str, name: str) -> np.ndarray:
        """Return a slot of a variable that lies on one shard in one piece."""
        for handler in self.handlers:
            layout = handler.shard.layout
            for index, group in enumerate(layout.groups):
                for piece in layout.pieces:
                    if piece.variable == variable and group.start <= piece.offset < group.stop:
                        start = (piece.offset - group.start) // np.dtype(piece.dtype).itemsize
                        size = piece.nbytes // np.dtype(piece.dtype).itemsize
                        return handler.shard.arrays.slots[index][name][start : start + size].reshape(piece.shape)
        raise KeyError(variable)

    def values(self) -> dict[str, np.ndarray]:
        whole = {v.name: np.zeros(v.shape, v.dtype) for v in self.model.variables}
        for handler in self.handlers:
            layout = handler.shard.layout
            for piece, view in zip(layout.pieces, piece_views(layout, handler.shard.arrays.arena), strict=True):
                whole[piece.variable][slice(piece.row_start, piece.row_stop) if piece.shape else ...] = view
        return whole

    def close(self) -> None:
        for server in self.servers:
            server.close()


@pytest.fixture(scope="session")
def ps_of() -> Iterator[Callable[..., Ps]]:
    made: list[Ps] = []

    def make(
        model: ModelSpec,
        num_ps: int = 1,
        max_steps: int | None = None,
        input_spec: InputSpec | None = None,
        **facts: Any,
    ) -> Ps:
        input_spec = input_spec or InputSpec(1000, num_epochs=None)
        job = Job(input_spec, max_steps, None, num_shards=num_ps, **facts)
        made.append(Ps(model, num_ps, job, is_stream=input_spec.is_stream))
        return made[-1]

    yield make
    for ps in made:
        ps.close()
