"""How two ends come to share memory, what they have of it, and what happens where it cannot be had."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from psflow.ps_runtime.errors import ProtocolError, UsageError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.transport import connecting, sharing, socket_client
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.shared_memory import SharedMemory
from psflow.ps_runtime.transport.socket_client import SocketConnection
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.transport.conftest import CERTIFICATE

SECS = 200.0
ARENA_BYTES = 3_000_000
PULL = Message(Kind.PULL)


class Service:
    """A ps with an arena, in a thread."""

    def __init__(self, probe) -> None:
        self.probe = probe
        self.arena = Arena.shared(ARENA_BYTES)
        self.server = SocketServer(probe, certificate=CERTIFICATE, arena=self.arena)
        self._is_over = False
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def _loop(self) -> None:
        while not self._is_over:
            self.server.run_once(SECS)
        self.server.close()
        self.arena.close()

    def run(self, event) -> None:
        """Run something in the thread of the ps."""
        done = threading.Event()
        self.server.post(lambda: (event(), done.set(), [])[2])
        assert done.wait(SECS)

    def publish(self, version: int) -> None:
        def change():
            self.arena.begin(version)
            self.arena.advance(0, self.arena.bytes.size)
            self.arena.bytes[:] = version
            self.arena.end()

        self.run(change)

    def connect(self, transport: str = "auto") -> SocketConnection:
        connection = connect(self.server.address, transport, SECS, "ps-0", certificate=CERTIFICATE)
        connection.shake_hands(SECS)
        connection.share(SECS)
        return connection

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.run(lambda: setattr(self, "_is_over", True))
        self._thread.join(SECS)


@pytest.fixture
def service(probe) -> Iterator[Service]:
    service = Service(probe)
    yield service
    service.close()


# what a connection has


@pytest.mark.parametrize(("asked", "why"), [("auto", "same host"), ("shm", "it was requested")])
def test_the_transport_is_shared_memory_where_it_can_be(service, asked, why):
    with service.connect(asked) as connection:
        assert connection.statistics()["transport"] == connection.transport == "shm"
        assert connection.statistics()["why"] == why
        connection.request(PULL, SECS)
        connection.share(SECS)
        assert service.server.transports == {"shm"}
        assert service.server.statistics()["messages"] == 2
    service.run(lambda: None)
    assert service.server.transports == {"shm"}


@pytest.mark.parametrize("asked", ["unix", "tcp"])
def test_nothing_is_shared_where_another_transport_was_asked_for(service, asked):
    with service.connect(asked) as connection:
        assert (connection.transport, connection.arena, connection.outbox(1)) == (asked, None, None)
        connection.request(PULL, SECS)
        assert service.server.transports == {asked}


def test_the_arena_is_read_without_asking(service):
    with service.connect() as connection:
        into = np.zeros(ARENA_BYTES, np.uint8)
        assert connection.arena.read(into) is None
        for version in (3, 4):
            service.publish(version)
            assert connection.arena.read(into) == version
            assert (into == version).all()
        assert service.server.statistics()["messages"] == 1


def test_a_ps_may_keep_its_arena_to_itself(probe):
    with SocketServer(probe, None, arena=Arena.private(16)) as server:
        connection = connect(server.address, "shm")
        with pytest.raises(WaitTimeoutError):
            connection.share(0.001)
        for _ in range(3):
            server.run_once(0)
        connection.share(SECS)
        assert (connection.transport, connection.arena) == ("shm", None)
        connection.close()


def test_a_body_made_in_the_outbox_is_not_copied(service):
    service.probe.limit = 100_000
    with service.connect() as connection:
        outbox = connection.outbox(50_000)
        outbox[:] = b"a" * 50_000
        reply = connection.request(Message(Kind.STATISTICS, body=outbox), SECS)
        assert bytes(reply.body) == b"a" * 50_000
        assert connection.outbox(50_000) is outbox
        assert connection.outbox(100_001) is None


def test_there_is_another_outbox_while_a_request_is_under_way(service):
    with service.connect() as connection:
        outbox = connection.outbox(50_000)
        outbox[:] = b"a" * 50_000
        connection.send(Message(Kind.AWAIT_SNAPSHOT, body=outbox))
        other = connection.outbox(50_000)
        other[:] = b"b" * 50_000
        service.probe.wait_for(lambda: len(service.probe.held) == 1)
        service.server.post(service.probe.release)
        connection.receive(SECS)
        connection.request(Message(Kind.STATISTICS, body=other), SECS)
        assert [body[:1] for _, kind, body in service.probe.seen] == [b"a", b"b"]
        assert connection.outbox(50_000) is outbox


def test_a_body_made_in_the_room_of_its_request_is_not_copied(service):
    rooms = []

    def made(peer, message):
        rooms.append(message.room(5000))
        return [(peer, Message(Kind.DONE, body=rooms[-1]))]

    service.probe.limit, service.probe.handle = 100_000, made
    with service.connect() as connection:
        body = connection.request(PULL, SECS).body
        rooms[0][:] = b"r" * 5000
        assert bytes(body) == b"r" * 5000
        assert connection.keep()
        for _ in range(3):
            connection.request(PULL, SECS)
            rooms[-1][:] = b"s" * 5000
        assert bytes(body) == b"r" * 5000
    rooms.clear()


def test_there_is_room_for_the_largest_reply(service):
    def made(peer, message):
        assert (message.room(ARENA_BYTES) is None, message.room(2 * ARENA_BYTES) is None) == (False, True)
        return [(peer, Message(Kind.DONE))]

    service.probe.limit, service.probe.handle = 100_000, made
    with service.connect() as connection:
        connection.request(PULL, SECS)


def test_the_handler_may_use_up_what_was_sent(service):
    def use_up(peer, message):
        np.frombuffer(message.body, np.uint8)[:] = 9
        return [(peer, Message(Kind.DONE))]

    service.probe.handle = use_up
    with service.connect() as connection:
        outbox = connection.outbox(5000)
        outbox[:] = bytes(5000)
        connection.request(Message(Kind.PUSH, body=outbox), SECS)
        assert bytes(outbox) == b"\x09" * 5000


def test_a_body_too_large_for_the_mailbox_goes_through_the_socket(service):
    service.probe.limit = 10_000
    with service.connect() as connection:
        service.probe.limit = 20_000
        service.probe.arena = bytearray(b"z" * 4_000_000)
        assert connection.request(Message(Kind.STATISTICS, body=b"s" * 20_000), SECS).body == b"s" * 20_000
        assert bytes(connection.request(PULL, SECS).body) == b"z" * 4_000_000


def test_a_closed_connection_shares_nothing(service):
    connection = service.connect()
    reader, outbox = connection.arena, connection.outbox(5000)
    service.publish(1)
    view = reader.bytes
    connection.close()
    assert (connection.arena, connection.outbox(1)) == (None, None)
    assert reader.read(np.zeros(ARENA_BYTES, np.uint8)) is None
    assert (view == 1).all()
    outbox[:] = bytes(5000)


def test_what_was_built_in_the_outbox_of_a_broken_connection_can_be_sent_by_another(service):
    first = service.connect()
    outbox = first.outbox(5000)
    outbox[:] = b"r" * 5000
    first.close()
    with service.connect() as second:
        assert second.request(Message(Kind.STATISTICS, body=outbox), SECS).body == b"r" * 5000


def test_the_owner_waits_for_a_reader_only_while_it_is_connected(service, monkeypatch):
    connection, other = service.connect(), service.connect()
    connection._shared.mailbox.mark[0] = 1
    marks = service.server._marks
    assert marks._overdue == {}
    service.publish(1)
    assert marks._overdue == {1: 1}
    connection.close()
    other.request(PULL, SECS)
    service.run(lambda: None)
    assert (list(marks._marks), marks._overdue) == ([2], {})
    other.close()


# where it cannot be had


@pytest.fixture
def no_memory(monkeypatch):
    def memfd_create(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", memfd_create)


def test_without_memory_the_socket_does_it_and_the_reason_is_told(service, no_memory):
    with service.connect("auto") as connection:
        assert connection.transport == "unix"
        assert connection.statistics()["why"] == "no shared memory: this system gives none (Function not implemented)"
        assert connection.request(Message(Kind.STATISTICS, body=b"x" * 9999), SECS).body == b"x" * 9999
        connection.share(SECS)
        assert service.server.statistics()["messages"] == 1


def test_without_memory_asking_for_nothing_else_is_an_error(service, no_memory):
    with pytest.raises(
        UsageError,
        match=r"transport 'shm' was requested, but no memory can be shared with ps-0: this system gives none",
    ):
        connect(service.server.address, "shm", SECS, "ps-0")


def test_a_ps_that_cannot_make_a_mailbox_says_why(service, monkeypatch):
    def create(*_, **options):
        raise OSError(24, "Too many open files")

    connection = connect(service.server.address, "shm", SECS, "ps-0")
    monkeypatch.setattr(sharing.Mailbox, "create", create)
    with pytest.raises(UsageError, match=r"no memory can be shared with ps-0 at .*: Too many open files"):
        connection.share(SECS)
    connection.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"boot_id": "another"}, "it runs on another host"), ({"unix_name": None}, "it listens on no Unix socket")],
)
def test_memory_is_shared_on_one_host_alone(service, change, reason):
    address = dataclasses.replace(service.server.address, **change)
    with pytest.raises(UsageError, match=f"no memory can be shared with ps-0: {reason}"):
        connect(address, "shm", SECS, "ps-0")


def test_memory_is_shared_only_where_its_order_is_known(service, monkeypatch):
    for module in (socket_client, connecting, sharing):
        monkeypatch.setattr(module, "why_no_shared_memory", lambda: "sparc does not keep the order")
    with pytest.raises(UsageError, match="sparc does not keep the order"):
        connect(service.server.address, "shm")
    with service.connect("auto") as connection:
        assert connection.statistics()["why"] == "no shared memory: sparc does not keep the order"
    monkeypatch.undo()
    monkeypatch.setattr(sharing, "why_no_shared_memory", lambda: "the ps is a sparc")
    with service.connect("auto") as connection:
        assert connection.statistics()["why"] == "no shared memory: the ps is a sparc"


def test_memory_that_cannot_be_mapped_is_an_error_that_says_what_to_do(service, monkeypatch):
    def attach(fd, *_, **__):
        os.close(fd)
        raise OSError(12, "Cannot allocate memory")

    connection = connect(service.server.address, "auto", SECS, "ps-0")
    monkeypatch.setattr(SharedMemory, "attach", attach)
    with pytest.raises(UsageError, match=r"cannot be mapped here: .*memory; choose the transport unix or tcp"):
        connection.share(SECS)
    with pytest.raises(UsageError):
        connection.send(PULL)


def test_sharing_may_be_asked_for_in_slices_of_time(probe):
    with SocketServer(probe, None, arena=None) as server:
        connection = connect(server.address, "auto")
        for _ in range(2):
            with pytest.raises(WaitTimeoutError):
                connection.share(0.001)
        with pytest.raises(ProtocolError, match="sent a request before it received"):
            connection.send(PULL)
        for _ in range(3):
            server.run_once(0)
        connection.share(SECS)
        assert (connection.transport, server.statistics()["messages"]) == ("shm", 1)
        connection.close()
