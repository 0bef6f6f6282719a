"""Rows stay as they were pulled for as long as a step may use them, whatever is pulled beside them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from psflow.ps_runtime.client.pulls import RowClient, Splits
from psflow.ps_runtime.client.shard_client import Identity, ShardClients, never_stop
from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.protocol.message import Kind, Message, Purpose
from psflow.ps_runtime.protocol.payloads import PushLayout, RowLayout
from psflow.ps_runtime.protocol.wire_codec import WireCodec
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.specs.variables import ModelSpec, TableSpec
from psflow.ps_runtime.specs.wire_format import EXACT
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.in_process import InProcessServer
from psflow.ps_runtime.transport.socket_server import SocketServer

SECS = 200.0
SPECS = tuple(TableSpec(name, 10_000, dim, "float32", 0, {"name": "zeros"}, 0) for name, dim in (("a", 1), ("b", 2)))
LAYOUT = RowLayout(SPECS)
RNG = np.random.default_rng(3)


class TellingIds:
    """A ps whose rows say who they are: the first number is the id, and a second one counts the pulls."""

    def __init__(self) -> None:
        self.num_pulls = 0

    def handle(self, peer, message):
        if message.kind is Kind.HELLO:
            return [(peer, Message(Kind.DONE))]
        self.num_pulls += 1
        ids, _ = LAYOUT.read_ids(np.frombuffer(message.body, np.uint8))
        counts = [len(some) for some in ids]
        nbytes = LAYOUT.values_nbytes(counts)
        body = message.room(nbytes) or memoryview(bytearray(nbytes))
        for some, rows in zip(ids, LAYOUT.values(np.frombuffer(body, np.uint8), counts), strict=True):
            rows[:] = self.num_pulls
            rows[:, 0] = some
        return [(peer, Message(Kind.ROWS, body=body))]

    def disconnected(self, peer):
        return []

    def max_body_bytes(self, peer, kind):
        return 1 << 20


class Scene:
    def __init__(self, transport: str, num_ps: int) -> None:
        self.handlers = [TellingIds() for _ in range(num_ps)]
        self._is_over = False
        if transport == "in-process":
            self.servers = [InProcessServer(handler) for handler in self.handlers]
            connect_functions = [lambda secs, s=server: s.connect() for server in self.servers]
        else:
            certificate = new_pem()
            self.servers = [SocketServer(handler, certificate=certificate) for handler in self.handlers]
            connect_functions = [
                lambda secs, s=server: connect(s.address, transport, secs, "ps", certificate=certificate)
                for server in self.servers
            ]
            self._threads = [threading.Thread(target=self._serve, args=(server,)) for server in self.servers]
            for thread in self._threads:
                thread.start()
        self.shards = ShardClients(
            connect_functions, Identity("job", "token", 0, "worker-0", Purpose.TRAIN), never_stop, SECS
        )
        self.shards.__enter__()
        layouts = place(ModelSpec((), (), SPECS), num_ps)
        codecs = [WireCodec(EXACT, layout, PushLayout.of(layout, 0, SPECS)) for layout in layouts]
        self.client = RowClient(self.shards, SPECS, Splits(num_ps), codecs)

    def _serve(self, server: SocketServer) -> None:
        while not self._is_over:
            server.run_once(SECS)

    def close(self) -> None:
        self.shards.close()
        self._is_over = True
        for server in self.servers:
            if isinstance(server, SocketServer):
                server.post(list)
        for thread in getattr(self, "_threads", ()):
            thread.join(SECS)
        for server in self.servers:
            server.close()


@pytest.fixture(params=["in-process", "unix", "tcp", "shm"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[1, 3])
def scene(request: pytest.FixtureRequest, transport: str) -> Iterator[Scene]:
    scene = Scene(transport, request.param)
    yield scene
    scene.close()


def some_ids(size=3000):
    """Return ids, ascending; of the default size their rows are too many for the socket alone."""
    return np.sort(RNG.choice(10_000, size, replace=False))


def are_of(rows, ids):
    return rows.shape[0] == len(ids) and bool((rows[:, 0] == ids).all())


def test_rows_come_in_the_order_of_their_ids(scene):
    for size in (3000, 10, 1, 0, 2000):
        ids = some_ids(size)
        assert are_of(scene.client.rows(SPECS[0], ids), ids)
    assert scene.client.num_pulled == 5011


def test_all_rows_of_a_step_stay(scene):
    for _ in range(4):
        scene.client.forget()
        given = [(ids, scene.client.rows(SPECS[number % 2], ids)) for number, ids in enumerate([some_ids()] * 2)]
        given += [(ids, scene.client.rows(SPECS[number % 2], ids)) for number in range(5) for ids in [some_ids()]]
        assert all(are_of(rows, ids) for ids, rows in given)


def test_rows_that_are_known_of_this_step_are_not_pulled_again(scene):
    ids = some_ids()
    first = scene.client.rows(SPECS[1], ids)
    assert scene.client.rows(SPECS[1], ids) is first
    before = first[0, 1]
    scene.client.forget()
    assert scene.client.rows(SPECS[1], ids)[0, 1] > before


@pytest.mark.parametrize("num_further", [0, 1, 3])
def test_rows_stay_while_the_next_ones_come_and_others_are_pulled(scene, num_further):
    client = scene.client
    ahead = {"a": some_ids(), "b": some_ids()}
    client.start(ahead, b"")
    client.finish()
    for _ in range(4):
        ids, ahead = ahead, {"a": some_ids(), "b": some_ids()}
        given = [(ids[spec.name], client.rows(spec, ids[spec.name])) for spec in SPECS]
        client.start(ahead, b"")
        given += [(other, client.rows(SPECS[0], other)) for other in (some_ids() for _ in range(num_further))]
        assert all(are_of(rows, some) for some, rows in given)
        client.finish()


def test_rows_of_the_only_ps_are_left_in_shared_memory():
    scene = Scene("shm", 1)
    ids = some_ids()
    rows = scene.client.rows(SPECS[0], ids)
    assert not rows.flags.owndata
    assert scene.client.rows(SPECS[0], some_ids()).flags.owndata
    scene.close()
    assert are_of(rows, ids)  # they outlive the connection
