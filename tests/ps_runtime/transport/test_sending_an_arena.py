"""A large arena goes out as it was when it was asked for, and is copied only if it changes before that."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ps_runtime.transport.arena import Arena
from ps_runtime.transport.connecting import connect
from ps_runtime.transport.message import Kind, Message
from ps_runtime.transport.socket_server import SocketServer

SIZE = 32 << 20
SECS = 30.0


class Pages:
    """Answers a pull with the arena, and a push by changing it."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena

    def handle(self, peer, message):
        if message.kind is Kind.PULL:
            return [(peer, Message(Kind.PARAMETERS, body=self.arena.bytes.data))]
        self.arena.begin(1)
        self.arena.advance(0, SIZE)
        self.arena.bytes[:] = 2
        self.arena.end()
        return [(peer, Message(Kind.DONE))]

    def disconnected(self, peer):
        return []

    def max_body_bytes(self, peer, kind):
        return 100


@pytest.fixture
def server():
    arena = Arena.private(SIZE)
    arena.bytes[:] = 1
    with SocketServer(Pages(arena), "127.0.0.1", unix=False, arena=arena) as server:
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                server.run_once(SECS)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server
        server.post(lambda: (stop.set(), [])[1])
        thread.join()


@pytest.mark.parametrize("changes_meanwhile", [False, True])
def test_who_asked_before_a_change_gets_what_was_there(server, changes_meanwhile):
    into = np.zeros(SIZE, np.uint8)
    with connect(server.address, "tcp", SECS) as slow, connect(server.address, "tcp", SECS) as other:
        slow.send(Message(Kind.PULL))
        if changes_meanwhile:
            other.request(Message(Kind.PUSH), SECS)
        slow.receive(SECS, into.data)
        assert (into == 1).all()
        slow.request(Message(Kind.PULL), SECS, into.data)
        assert (into == 2).all() == changes_meanwhile
        copied = [len(spare) for spare in server._spares._spares]
        assert [size > SIZE // 4 for size in copied] == [True] * changes_meanwhile
