"""A step over TCP with one ps is one request and one reply: the answer to a push brings the parameters of the next."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from psflow.ps_runtime.client import pulls, shard_client
from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.shard_client import Identity, ShardClients, never_stop
from psflow.ps_runtime.client.training import Grant, TrainingClient
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.model.calls.gradients import StepResult
from psflow.ps_runtime.model.lookups import RowGradient
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers.gradient_descent import Momentum
from psflow.ps_runtime.protocol.message import HEADER, Kind, Purpose
from psflow.ps_runtime.protocol.payloads import GRANT
from psflow.ps_runtime.roles.step_source import InTurn, KnownIds, Work, next_work
from psflow.ps_runtime.server.handler import JobKey, PsHandler
from psflow.ps_runtime.server.job import Job
from psflow.ps_runtime.server.job_requests import JobRequests
from psflow.ps_runtime.server.shard import Shard
from psflow.ps_runtime.specs.consistency import Sync
from psflow.ps_runtime.specs.input import InputSpec
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec, VariableSpec
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.listeners import Address
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.limits import HANG_SECS
from tests.ps_runtime.client.conftest import Storage
from tests.ps_runtime.rules import rules_of

CERTIFICATE = new_pem()
SIZE = 25_000
MODEL = ModelSpec(
    (VariableSpec("w", (SIZE,), "float32", 0), VariableSpec("b", (), "float64", 0)),
    (Momentum(learning_rate=0.5, momentum=0.9).config(),),
)
START = {"w": np.linspace(-1, 1, SIZE, dtype=np.float32), "b": np.float64(3)}
REPLY_BYTES = HEADER.size + GRANT.size + place(MODEL, 1)[0].nbytes
NUM_STEPS = 12


class Clock:
    """The seconds of a replica: they pass as the test says."""

    def __init__(self) -> None:
        self.now = self.secs_per_look = 0.0

    def __call__(self) -> float:
        self.now += self.secs_per_look
        return self.now


class Relay:
    """A TCP port that passes all bytes on to another, and may cut the next reply."""

    def __init__(self, address: Address) -> None:
        self._port = address.tcp_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = replace(address, tcp_port=self._listener.getsockname()[1])
        self.left: int | None = None
        """How many bytes more pass to the role before the connection breaks; None: all."""
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(HANG_SECS)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                role, _ = self._listener.accept()
                ps = socket.create_connection(("127.0.0.1", self._port))
                self._sockets += (role, ps)
                for target, args in ((self._pass_on, (role, ps)), (self._pass_back, (ps, role))):
                    self._threads.append(threading.Thread(target=target, args=args))
                    self._threads[-1].start()

    def _pass_on(self, role: socket.socket, ps: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := role.recv(1 << 16):
                ps.sendall(data)
            ps.shutdown(socket.SHUT_RDWR)

    def _pass_back(self, ps: socket.socket, role: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := ps.recv(1 << 16):
                left = self.left
                if left is None:
                    role.sendall(data)
                    continue
                role.sendall(data[:left])
                self.left = left - len(data) if len(data) < left else None
                if self.left is None:
                    ps.shutdown(socket.SHUT_RDWR)
                    break
            role.shutdown(socket.SHUT_RDWR)


class Scene(NamedTuple):
    """A ps on TCP, whose job is open, and the way to it."""

    server: SocketServer
    job: Job
    relay: Relay

    def shards(self, purpose: Purpose = Purpose.TRAIN) -> ShardClients:
        identity = Identity("job", "token", MODEL.digest, f"{purpose}-0", purpose, 0, 1)
        dial = partial(connect, self.relay.address, "tcp", certificate=CERTIFICATE)
        return ShardClients([dial], identity, never_stop, HANG_SECS)


@contextlib.contextmanager
def opened() -> Iterator[Scene]:
    job = Job(InputSpec(1000, num_epochs=None), None, None)
    shard = Shard(place(MODEL, 1)[0], rules_of(MODEL))
    handler = PsHandler(JobKey("job", "token", MODEL.digest, 1), shard, Storage(), JobRequests(job, None, shard))
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            server.run_once(HANG_SECS)

    with SocketServer(handler, "127.0.0.1", unix=False, certificate=CERTIFICATE) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        scene = Scene(server, job, Relay(server.address))
        with scene.shards(Purpose.SAVE) as shards:
            saving = SavingClient(shards, MODEL, HANG_SECS)
            saving.initialize(START)
            saving.open()
        yield scene
        scene.relay.close()
        server.post(lambda: (is_over.set(), [])[1])
        thread.join(HANG_SECS)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with opened() as scene:
        yield scene


class Reader:
    """Gives the records of a ticket as its batch."""

    def read(self, records: Any) -> tuple[Any, Any]:
        return {"x": records}, None


class Replica:
    """Trains as a role does, with gradients that depend on every bit of the variables."""

    def __init__(self, shards: ShardClients, clock: Clock) -> None:
        self.client = TrainingClient(shards, MODEL, HANG_SECS, clock=clock)
        self.source = InTurn(self.client, Reader(), self._call_model_fn, KnownIds((), {}))
        self.work = next_work(self.client, Reader(), self.client.next_grant())
        self.seen: list[Any] = []

    def step(self) -> None:
        assert isinstance(self.work, Work)
        self.source.pull(self.work)
        result = self.source.compute(self.work)
        before = {name: value.copy() for name, value in self.client.variables.items()}
        self.source.push(self.work, result, 1)
        np.testing.assert_equal(self.client.variables, before, "hooks see what the step was computed on")
        self.seen.append((self.work.grant, self.work.versions, {name: v.tobytes() for name, v in before.items()}))
        self.work = self.source.following()

    def _call_model_fn(self, work: Work) -> StepResult:
        gradients = {name: 0.1 * value + work.grant.global_step for name, value in self.client.variables.items()}
        spec = EstimatorSpec(ModeKeys.PREDICT, predictions={"x": np.zeros(1)})
        return StepResult(spec, 0.0, gradients, (0.5,), {}, {})


def test_a_step_over_tcp_is_one_request_and_one_reply(scene):
    with scene.shards() as shards:
        replica = Replica(shards, Clock())
        replica.step()
        connection, before = shards[0].connection, shards[0].connection.statistics()
        num_before = scene.server.statistics()["messages"]
        for _ in range(NUM_STEPS):
            replica.step()
        now = connection.statistics()
        assert now["requests"] - before["requests"] == NUM_STEPS
        assert now["bytes_in"] - before["bytes_in"] == NUM_STEPS * REPLY_BYTES
        assert scene.server.statistics()["messages"] - num_before == NUM_STEPS


def steps(scene: Scene, *, waits: bool = False, cut: int | None = None, cut_at: int = -1) -> list[Any]:
    """Return what each step was computed on, and the last values."""
    clock = Clock()
    with scene.shards() as shards:
        replica = Replica(shards, clock)
        for number in range(NUM_STEPS):
            scene.relay.left = cut if number == cut_at else None
            replica.step()
            clock.now += waits
        replica.client.pull()
        last = {name: value.tobytes() for name, value in replica.client.variables.items()}
        assert shards.statistics()["shards"][0]["reconnects"] == (cut is not None)
        assert scene.job.statistics()["pushes"] == scene.job.global_step == NUM_STEPS
        assert scene.job.num_given == 1
        return [*replica.seen, last]


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    """What the steps of a replica are computed on that asks for its parameters each time."""
    with opened() as scene:
        found = steps(scene, waits=True)
        assert scene.server.statistics()["messages"] >= 2 * NUM_STEPS
        return found


def test_the_steps_are_the_same_bit_by_bit_as_with_a_pull_for_each(scene, undisturbed):
    assert steps(scene) == undisturbed


@pytest.mark.parametrize("num_bytes", [0, 40, REPLY_BYTES // 2, REPLY_BYTES])
def test_a_reply_that_is_cut_off_comes_again_whole_and_the_push_counts_once(scene, undisturbed, monkeypatch, num_bytes):
    """TLS adds some bytes to each record, so that the end of a reply is missing in each case."""
    monkeypatch.setattr(shard_client, "RETRY_SECS", 0.001)
    assert steps(scene, cut=num_bytes, cut_at=NUM_STEPS // 2) == undisturbed


# which values, and when they are asked for


class Pair:
    """Two replicas of ps in this process, each with its clock."""

    def __init__(self, stack: ExitStack, ps: Any) -> None:
        self.ps = ps
        saving = SavingClient(stack.enter_context(ps.shards(Purpose.SAVE)), ps.model, HANG_SECS)
        saving.initialize({v.name: np.zeros(v.shape, v.dtype) for v in ps.model.variables})
        saving.open()
        self.clocks = [Clock(), Clock()]
        shards = [stack.enter_context(ps.shards(replica=replica)) for replica in (0, 1)]
        self.clients = [
            TrainingClient(some, ps.model, HANG_SECS, clock=clock)
            for some, clock in zip(shards, self.clocks, strict=True)
        ]
        for client in self.clients:
            client.next_grant()

    def num_pulls(self) -> int:
        return int(self.ps.kinds.count(Kind.PULL))


@pytest.fixture
def pair(ps_of) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack, ps_of(MODEL, num_replicas=2))


def push(client: TrainingClient) -> Any:
    return client.push({"b": np.float64(1)}, [1.0], 1)


def test_parameters_are_those_of_the_ticket_and_count_as_stale_as_they_are(pair):
    first, second = pair.clients
    first.pull()
    second.pull()
    assert push(first).global_step == 1
    assert push(second).staleness == 1
    assert (first.pull(), first.variables["b"]) == ((1,), -1.0)
    assert pair.num_pulls() == 2
    assert push(first).staleness == 1
    assert (first.pull(), pair.num_pulls()) == ((3,), 2)


def test_parameters_that_have_been_here_for_longer_than_a_push_takes_are_asked_for(pair):
    (first, second), clock = pair.clients, pair.clocks[0]
    for wait_secs, expected in ((2.0, ((1,), 0)), (2.1, ((4,), 1))):
        clock.secs_per_look = 1.0  # a second to send it, a second to wait for the answer
        push(first)
        clock.secs_per_look = 0.0
        push(second)
        clock.now += wait_secs
        assert (first.pull(), pair.num_pulls()) == expected


def test_parameters_are_used_for_one_pull(pair):
    first, _ = pair.clients
    push(first)
    first.pull()
    assert pair.num_pulls() == 0
    first.pull()
    assert pair.num_pulls() == 1


def test_parameters_of_an_earlier_ticket_are_not_used_for_a_later_one(pair):
    first, second = pair.clients
    push(first)
    push(second)
    assert first.next_grant().global_step == 1
    assert (first.pull(), pair.num_pulls()) == ((2,), 1)


def test_in_a_round_all_have_the_parameters_that_it_made(ps_of):
    with ExitStack() as stack:
        pair = Pair(stack, ps_of(MODEL, num_replicas=2, consistency=Sync()))
        for step in range(1, 4):
            for client in pair.clients:
                client.start_push({"b": np.float64(1)}, [1.0], 1, (step - 1,))
            assert [client.finish_push().global_step for client in pair.clients] == [step, step]
            assert [client.pull() for client in pair.clients] == [(step,), (step,)]
            assert pair.clients[0].variables["b"] == pair.clients[1].variables["b"]
        assert pair.num_pulls() == 0


def test_with_a_ticket_ahead_the_parameters_are_asked_for(pair):
    first, _ = pair.clients
    assert isinstance(first.further_grant(), Grant)
    assert isinstance(push(first), Grant)
    assert (first.pull(), pair.num_pulls()) == ((1,), 1)


def test_several_ps_are_asked(ps_of):
    with ExitStack() as stack:
        pair = Pair(stack, ps_of(MODEL, 2, num_replicas=2))
        push(pair.clients[0])
        num_before = pair.num_pulls()
        pair.clients[0].pull()
        assert pair.num_pulls() == num_before + 2


def test_parameters_whose_copy_takes_longer_than_a_round_trip_are_asked_for(ps_of, monkeypatch):
    nbytes = place(MODEL, 1)[0].nbytes
    for limit, expected in ((nbytes, 0), (nbytes - 1, 1)):
        monkeypatch.setattr(pulls, "MAX_CARRIED_BYTES", limit)
        with ExitStack() as stack:
            pair = Pair(stack, ps_of(MODEL, num_replicas=2))
            push(pair.clients[0])
            assert (pair.clients[0].pull(), pair.num_pulls()) == ((1,), expected)


def test_only_rows_are_asked_for_where_the_ids_are_known(ps_of):
    table = TableSpec("items", 10, 2, "float32", 0, {"name": "zeros"}, seed=7)
    with ExitStack() as stack:
        pair = Pair(stack, ps_of(replace(MODEL, tables=(table,)), num_replicas=2))
        client, ids = pair.clients[0], np.array([3, 7])
        gradients = {"b": np.float64(1), "items": RowGradient(ids, np.ones((2, 2), np.float32))}
        for step in range(1, 4):
            client.push(gradients, [1.0], 1)
            client.start_pull({"items": ids})
            assert client.finish_pull() == (step,)
            assert (client.rows.rows(table, ids) < 0).all()
        assert [pair.ps.kinds.count(kind) for kind in (Kind.PUSH, Kind.PULL_ROWS, Kind.PULL)] == [3, 3, 0]
