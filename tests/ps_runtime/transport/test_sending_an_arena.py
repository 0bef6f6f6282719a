"""An arena goes out as it was when it was asked for; a large one is copied only if it changes before that."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.transport import socket_server
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.transport.conftest import CERTIFICATE
from tests.tasks.waiting import wait_until

SMALL, LARGE = 800_000, 2_000_000
TAKEN_BYTES = 64 * 1024
SECS = 200.0


class Pages:
    """Answers a pull with the arena, behind `start`, and a push by changing it."""

    def __init__(self, arena: Arena, start: bytes) -> None:
        self.arena = arena
        self.start = start
        self.version = 1
        self.num_pulls = 0

    def handle(self, peer, message):
        if message.kind is Kind.PULL:
            self.num_pulls += 1
            return [(peer, Message(Kind.PARAMETERS, body=self.start, tail=self.arena.bytes.data))]
        self.version += 1
        self.arena.begin(self.version)
        self.arena.advance(0, self.arena.bytes.size)
        self.arena.bytes[:] = self.version
        self.arena.end()
        return [(peer, Message(Kind.DONE))]

    def disconnected(self, peer):
        return []

    def max_body_bytes(self, peer, kind):
        return 100


@pytest.fixture(params=[(SMALL, b""), (LARGE, b""), (SMALL, b"start"), (LARGE, b"start")])
def pages(request):
    size, start = request.param
    arena = Arena.private(size)
    arena.bytes[:] = 1
    return Pages(arena, start)


@pytest.fixture
def server(pages, monkeypatch):
    tune = socket_server.tune

    def tune_narrowly(sock: socket.socket) -> None:
        """Have the kernel take little of a reply at once, as it does on a real network."""
        tune(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, TAKEN_BYTES)

    monkeypatch.setattr(socket_server, "tune", tune_narrowly)
    with SocketServer(pages, "127.0.0.1", certificate=CERTIFICATE, arena=pages.arena) as server:
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                server.run_once(SECS)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server
        server.post(lambda: (stop.set(), [])[1])
        thread.join()


def opened(server: SocketServer, transport: str) -> Connection:
    connection = connect(server.address, transport, SECS, certificate=CERTIFICATE)
    connection.shake_hands(SECS)
    connection.request(Message(Kind.PULL), SECS)  # the ps has all of the handshake now
    return connection


@pytest.mark.parametrize("transport", ["tcp", "unix"])
@pytest.mark.parametrize("num_changes", [0, 1, 3])
def test_who_asked_before_a_change_gets_what_was_there(server, pages, transport, num_changes):
    size = pages.arena.bytes.size
    into = np.zeros(len(pages.start) + size, np.uint8)
    values = into[len(pages.start) :]
    with opened(server, transport) as slow, opened(server, transport) as other:
        num_before = pages.num_pulls
        slow.send(Message(Kind.PULL))
        wait_until(lambda: pages.num_pulls > num_before)  # connections have no order among themselves
        for _ in range(num_changes):
            other.request(Message(Kind.PUSH), SECS)
        slow.receive(SECS, into.data)
        assert (values == 1).all()
        slow.request(Message(Kind.PULL), SECS, into.data)
        assert (values == 1 + num_changes).all()
        assert bytes(into[: len(pages.start)]) == pages.start
        if size == LARGE:
            assert len(server._spares._spares) == min(1, num_changes)
