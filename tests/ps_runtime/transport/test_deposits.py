"""A deposited request is found before any later event, whoever sent that, and whatever became of its sender."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from psflow.ps_runtime.errors import BrokenPeerError, ProtocolError, RefusedError
from psflow.ps_runtime.protocol.message import HEADER, IN_MAILBOX, Kind, Message, encode_header
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.socket_client import SocketConnection
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.transport.conftest import Ps
from tests.ps_runtime.transport.test_sharing_garbage import dial, share, step

SECS = 200.0
LARGE = 50_000
PUSH, PULL = Kind.PUSH, Kind.PULL


@pytest.fixture
def server(probe) -> Iterator[SocketServer]:
    arena = Arena.shared(16)
    with SocketServer(probe, None, arena=arena, takes_deposits=True) as server:
        yield server
    arena.close()


def come(server: SocketServer) -> SocketConnection:
    """Connect without a thread: ask and serve in turn."""
    connection = connect(server.address, "shm", SECS)
    assert request(server, connection, Kind.STATISTICS).kind is Kind.DONE
    connection.send(Message(Kind.SHARE))
    connection._inbox.recv_into = connection._descriptors.recv_into
    step(server)
    connection.share(SECS)
    return connection


def request(server: SocketServer, connection: SocketConnection, kind: Kind, body: bytes = b"") -> Message:
    connection.send(Message(kind, body=body))
    step(server)
    return connection.receive(SECS)


def deposit(connection: SocketConnection, byte: bytes, nbytes: int = LARGE) -> None:
    outbox = connection.outbox(nbytes)
    assert outbox is not None
    outbox[:] = byte * nbytes
    assert connection.deposit(Message(PUSH, body=outbox))


def test_a_deposit_wakes_no_one_and_is_there_before_the_next_event_of_anyone(server, probe):
    with come(server) as one, come(server) as other:
        num_seen = len(probe.seen)
        deposit(one, b"a")
        step(server)
        assert len(probe.seen) == num_seen
        reply = request(server, other, PULL)
        assert [(peer, kind) for peer, kind, _ in probe.seen[num_seen:]] == [(1, PUSH), (2, PULL)]
        assert bytes(reply.body) == b"a" * 16
        assert bytes(request(server, other, PULL).body) == b"a" * 16
        assert len(probe.seen) == num_seen + 3  # once


def test_a_deposit_has_no_reply_and_is_counted_at_both_ends(server):
    with come(server) as connection:
        before = server.statistics()["messages"], connection.statistics()["requests"]
        moved = server.statistics()["bytes_in"], connection.statistics()["bytes_out"]
        deposit(connection, b"b")
        assert bytes(request(server, connection, PULL).body) == b"b" * 16
        assert (server.statistics()["messages"], connection.statistics()["requests"]) == (before[0] + 2, before[1] + 2)
        nbytes = 2 * HEADER.size + LARGE
        assert server.statistics()["bytes_in"] == moved[0] + nbytes
        assert connection.statistics()["bytes_out"] == moved[1] + nbytes


@pytest.mark.parametrize("nbytes", [0, 1, LARGE])
def test_a_body_of_any_size_is_deposited_wherever_it_was_made(server, probe, nbytes):
    with come(server) as connection:
        assert connection.deposit(Message(PUSH, body=b"c" * nbytes))
        request(server, connection, PULL)
        assert probe.seen[-2] == (1, PUSH, b"c" * nbytes)


def test_a_deposit_of_a_connection_that_ends_is_found_before_its_end(server, probe):
    with come(server) as other:
        one = come(server)
        deposit(one, b"d")
        one.close()
        step(server)
        assert (probe.seen[-1][:2], probe.gone) == ((2, PUSH), [2])
        assert bytes(request(server, other, PULL).body) == b"d" * 16


def test_one_request_is_deposited_at_a_time(server):
    with come(server) as connection:
        deposit(connection, b"f")
        with pytest.raises(ProtocolError, match="it deposited a request before it received the reply to the last one"):
            connection.deposit(Message(PUSH, body=b"g"))
        connection.send(Message(PULL))
        with pytest.raises(ProtocolError, match="it deposited a request before"):
            connection.deposit(Message(PUSH, body=b"g"))
        step(server)
        connection.receive(SECS)
        deposit(connection, b"g")
        assert bytes(request(server, connection, PULL).body) == b"g" * 16


def test_the_memory_of_a_deposit_is_given_back_by_the_next_reply(server, probe):
    with come(server) as connection:
        first = connection.outbox(LARGE)
        deposit(connection, b"h")
        other = connection.outbox(LARGE)
        assert other is not first
        connection.send(Message(Kind.STATISTICS, body=b"i" * LARGE))
        assert connection.outbox(LARGE) is None
        step(server)
        assert probe.seen[-2:] == [(1, PUSH, b"h" * LARGE), (1, Kind.STATISTICS, b"i" * LARGE)]
        connection.receive(SECS)
        assert connection.outbox(LARGE) is first


@pytest.mark.parametrize("kind", ["in-process", "unix", "tcp", "shm"])
def test_nothing_is_deposited_where_no_one_looks(kind):
    ps = Ps(kind)
    connection = ps.connect()
    assert not connection.deposit(Message(PUSH, body=b"j"))
    assert connection.request(Message(PULL), SECS).body == b"\1" * 16
    assert [seen for _, seen, _ in ps.probe.seen if seen is PUSH] == []
    ps.abandon()


def test_a_connection_that_has_ended_takes_no_deposit(server):
    connection = come(server)
    server.close()
    with pytest.raises(BrokenPeerError):
        connection.send(Message(PULL))
    with pytest.raises(BrokenPeerError):
        connection.deposit(Message(PUSH, body=b"k"))
    connection.close()


def test_a_deposit_that_breaks_the_protocol_is_refused_and_its_peer_disconnected(server, probe):
    with come(server) as one, come(server) as other:
        assert one.deposit(Message(Kind.FETCH))
        assert request(server, other, PULL).kind is Kind.PARAMETERS
        assert probe.gone == [1]
        with pytest.raises(RefusedError, match="FETCH is not for now"):
            one.request(Message(PULL), SECS)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (encode_header(Message(Kind.DONE), 0, IN_MAILBOX), "DONE is not a request"),
        (encode_header(Message(PUSH), 1 << 40, IN_MAILBOX), "at most 16777216 are allowed"),
        (b"\0" * HEADER.size, "expected the magic"),
    ],
)
def test_garbage_in_the_place_of_deposits_is_refused(server, probe, header, reason):
    with dial(server) as sock:
        sock.sendall(encode_header(Message(Kind.STATISTICS), 0))
        step(server)
        sock.recv(HEADER.size)
        mailbox = share(server, sock)
        mailbox.deposit(header)
        sock.sendall(encode_header(Message(PULL), 0))
        step(server)
        assert reason.encode() in sock.recv(65536)
        assert sock.recv(1) == b""
        assert [kind for _, kind, _ in probe.seen] == [Kind.STATISTICS]
        mailbox.close()


def test_a_handler_answers_others_at_a_deposit(server, probe):
    with come(server) as one, come(server) as other:
        other.send(Message(Kind.AWAIT_SNAPSHOT))
        step(server)
        assert one.deposit(Message(Kind.COMMITTED))
        request(server, one, PULL)
        assert other.receive(SECS).kind is Kind.SNAPSHOT_DUE
