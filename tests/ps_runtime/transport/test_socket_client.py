"""What a connection does with a ps that is slow, broken or hostile: the test plays the ps, byte by byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from psflow.ps_runtime.errors import BrokenPeerError, ClosedError, ProtocolError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import HEADER, MAGIC, Kind, Message, encode_header
from psflow.ps_runtime.transport.socket_client import SocketConnection

SECS = 200.0
PULL = Message(Kind.PULL)


@pytest.fixture(params=[0.0, 0.01], ids=["asleep", "awake"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[SocketConnection, socket.socket]]:
    ours, theirs = socket.socketpair()
    with (
        SocketConnection(ours, "unix", "a test", "ps-0 at here", 0.05, 1000, awake_secs=request.param) as connection,
        theirs,
    ):
        connection._spin._was_short = bool(request.param)  # as after a short wait: the next one begins awake
        yield connection, theirs


class InterruptedSocket(socket.socket):
    """Sends a part of a message only, as when a signal comes meanwhile."""

    num_bytes = 0

    def sendmsg(self, buffers):
        return super().send(b"".join(buffers)[: self.num_bytes])


def reply(body: bytes) -> bytes:
    return encode_header(Message(Kind.PARAMETERS, version=4), len(body)) + body


def test_a_reply_survives_timeouts_in_the_middle_of_it(ends):
    connection, ps = ends
    data = reply(bytes(range(100)))
    into = memoryview(bytearray(100))
    connection.send(PULL)
    for start, stop in ((0, 10), (10, HEADER.size + 30), (HEADER.size + 30, len(data) - 1)):
        ps.sendall(data[start:stop])
        with pytest.raises(WaitTimeoutError, match="ps-0 at here did not reply within"):
            connection.receive(0.001, into)
    ps.sendall(data[-1:])
    message = connection.receive(SECS, into)
    assert message.body is into
    assert bytes(into) == bytes(range(100))
    assert message.version == 4


@pytest.mark.parametrize(("first", "second"), [(100, 0), (0, 100), (100, 100)])
def test_the_buffer_may_change_between_two_receives(ends, first, second):
    connection, ps = ends
    data = reply(bytes(range(100)))
    connection.send(PULL)
    ps.sendall(data[:-40])
    with pytest.raises(WaitTimeoutError):
        connection.receive(0.001, memoryview(bytearray(first)))
    ps.sendall(data[-40:])
    into = memoryview(bytearray(second))
    message = connection.receive(SECS, into)
    assert bytes(message.body) == bytes(range(100))
    assert (message.body is into) == (second == 100)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request".ljust(HEADER.size), "expected the magic b'psf1', got b'HTTP'"),
        (encode_header(Message(Kind.PARAMETERS), 1001), "announced 1001 bytes as the body of PARAMETERS, at most 1000"),
        (encode_header(PULL, 0), "PULL is not a reply"),
    ],
)
def test_a_bad_reply_ends_the_connection(ends, data, reason):
    connection, ps = ends
    connection.send(PULL)
    ps.sendall(data)
    for _ in range(2):
        with pytest.raises(ProtocolError, match=f"ps-0 at here broke the protocol: {reason}"):
            connection.receive(SECS)
    assert ps.recv(2000)[:4] == MAGIC  # the request
    assert ps.recv(1) == b""


def test_a_refusal_must_say_something(ends):
    connection, ps = ends
    connection.send(PULL)
    ps.sendall(encode_header(Message(Kind.REFUSED), 3) + b"no!")
    with pytest.raises(ProtocolError, match="the body of REFUSED is not JSON"):
        connection.receive(SECS)


@pytest.mark.parametrize("num_bytes", [0, 20, HEADER.size + 5])
def test_a_peer_that_vanishes_in_the_middle(ends, num_bytes):
    connection, ps = ends
    connection.send(PULL)
    ps.recv(HEADER.size)
    ps.sendall(reply(b"x" * 50)[:num_bytes])
    ps.close()
    with pytest.raises(BrokenPeerError, match="no connection to ps-0 at here: it closed the connection"):
        connection.receive(SECS)


def test_a_peer_that_takes_nothing_counts_as_vanished(ends):
    connection, _ = ends
    with pytest.raises(BrokenPeerError, match=r"it read nothing of PUSH for 0\.05 s"):
        connection.send(Message(Kind.PUSH, body=bytes(1 << 24)))
    with pytest.raises(BrokenPeerError):
        connection.receive(SECS)
    connection.close()
    with pytest.raises(ClosedError):
        connection.receive(SECS)


@pytest.mark.parametrize("num_bytes", [1, HEADER.size, HEADER.size + 5])
def test_a_request_that_is_interrupted_is_sent_to_its_end(num_bytes):
    ours, theirs = socket.socketpair()
    interrupted = InterruptedSocket(fileno=ours.detach())
    interrupted.num_bytes = num_bytes
    with SocketConnection(interrupted, "unix", "a test", "ps-0 at here", SECS, 1000) as connection, theirs:
        connection.send(Message(Kind.PUSH, body=bytes(range(200))))
        assert theirs.recv(HEADER.size + 200, socket.MSG_WAITALL)[HEADER.size :] == bytes(range(200))
