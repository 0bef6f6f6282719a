"""Ps in this process whose connections break on command, with or without shared memory."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.client.shard_client import Connect, Identity, ShardClients, never_stop
from psflow.ps_runtime.errors import BrokenPeerError, ClosedError
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.instructions import Refusal
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import piece_views, place
from psflow.ps_runtime.specs.variables import ModelSpec
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.in_process import InProcessServer
from psflow.ps_runtime.transport.socket_client import SocketConnection
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.rules import rules_of

SECS = 200.0


class Storage:
    """Writes at once; `error` is what it fails with."""

    def __init__(self) -> None:
        self.error: Refusal | None = None
        self.handler: PsHandler
        self.server: InProcessServer | SocketServer

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
        is_lost = self._is_lost_after(message)
        self.inner.send(message)
        self.is_broken = is_lost

    def deposit(self, message: Message) -> bool:
        if self.transport != "shm":
            return False
        is_lost = self._is_lost_after(message, is_deposit=True)
        is_there = self.inner.deposit(message)
        self.ps.num_deposits += is_there
        self.is_broken = is_lost
        return is_there

    def _is_lost_after(self, message: Message, *, is_deposit: bool = False) -> bool:
        if not self.is_broken:
            self.ps.kinds.append(message.kind)
            fault = self.ps.faults.pop(len(self.ps.kinds) - 1, None)
            self.ps.hit = (message, is_deposit) if fault else self.ps.hit
            self.is_broken = fault == "request"
            if fault == "connection":  # the ps notices first
                self.ps.lose(self.inner)
        if self.is_broken:
            raise BrokenPeerError(self.peer, "the line went dead")
        return fault == "reply"

    def receive(self, timeout_secs: float, into: memoryview | None = None) -> Message:
        if self.is_broken:
            raise BrokenPeerError(self.peer, "the line went dead")
        return self.inner.receive(timeout_secs, into)

    def shake_hands(self, timeout_secs: float) -> None:
        pass

    def share(self, timeout_secs: float) -> None:
        self.inner.share(timeout_secs)
        self.transport, self.arena = self.inner.transport, self.inner.arena

    def outbox(self, nbytes: int) -> memoryview | None:
        return self.inner.outbox(nbytes)

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

    def __init__(self, model: ModelSpec, num_ps: int, job: Job, *, is_stream: bool, shares_memory: bool) -> None:
        self.model = model
        self.num_deposits = 0
        self._is_over = False
        self._threads: list[threading.Thread] = []
        self.faults: dict[int, str] = {}
        self.notices_late = False
        self.hit: tuple[Message, bool] | None = None
        """The last message that a fault has met, and whether it was deposited."""
        self.unnoticed: list[Connection] = []
        self.kinds: list[Kind] = []
        self.key = JobKey("job", "token", model.digest, 8)
        optimizers = rules_of(model)
        new_arena = Arena.shared if shares_memory else Arena.private
        shards = [
            Shard(layout, optimizers, model.tables, num_ps, arena=new_arena(layout.nbytes))
            for layout in place(model, num_ps)
        ]
        self.job_requests = JobRequests(job, Stream() if is_stream else None, shards[0])
        self.handlers, self.servers, self.storages = [], [], []
        for index, shard in enumerate(shards):
            storage = Storage()
            storage.handler = PsHandler(self.key, shard, storage, self.job_requests if index == 0 else None)
            storage.server = self._serve(storage.handler) if shares_memory else InProcessServer(storage.handler)
            self.storages.append(storage)
            self.handlers.append(storage.handler)
            self.servers.append(storage.server)

    def _serve(self, handler: PsHandler) -> SocketServer:
        is_ps_0 = handler.job_requests is not None
        server = SocketServer(handler, None, arena=handler.shard.arena, takes_deposits=not is_ps_0)

        def run() -> None:
            while not self._is_over:
                server.run_once(SECS)

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        return server

    def lose(self, connection: SocketConnection) -> None:
        """Have the ps lose a connection over a socket."""
        connection._socket.shutdown(socket.SHUT_WR)
        ends = select.poll()
        ends.register(connection._socket, select.POLLIN)
        assert ends.poll(1000 * SECS), "the ps ends it, too"

    @property
    def connect_functions(self) -> Sequence[Connect]:
        return [self._dial_of(index) for index in range(len(self.servers))]

    def _dial_of(self, index: int) -> Connect:
        server, name = self.servers[index], f"ps-{index}"
        if isinstance(server, InProcessServer):
            return lambda timeout_secs: FragileConnection(server.connect(name), self)
        return lambda timeout_secs: FragileConnection(connect(server.address, "auto", timeout_secs, name), self)

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
        self._is_over = True
        for server, thread in zip(self.servers, self._threads, strict=False):
            with contextlib.suppress(ClosedError):  # it has failed
                server.post(list)
            thread.join(SECS)
        for server, handler in zip(self.servers, self.handlers, strict=True):
            server.close()
            handler.shard.arena.close()
        for connection in self.unnoticed:
            connection.close()


@pytest.fixture(scope="session")
def ps_of() -> Iterator[Callable[..., Ps]]:
    made: list[Ps] = []

    def make(
        model: ModelSpec,
        num_ps: int = 1,
        max_steps: int | None = None,
        input_spec: InputSpec | None = None,
        shares_memory: bool = False,
        **facts: Any,
    ) -> Ps:
        input_spec = input_spec or InputSpec(1000, num_epochs=None)
        job = Job(input_spec, max_steps, None, num_shards=num_ps, **facts)
        made.append(Ps(model, num_ps, job, is_stream=input_spec.is_stream, shares_memory=shares_memory))
        return made[-1]

    yield make
    for ps in made:
        ps.close()
