"""What the one end of shared memory cannot do to the other. Stepped manually: no threads, no waiting."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

import pytest

from psflow.ps_runtime.errors import BrokenPeerError, ProtocolError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import HEADER, IN_MAILBOX, Kind, Message, decode_header, encode_header
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.inbox import Mailbox
from psflow.ps_runtime.transport.shared_memory import SharedMemory
from psflow.ps_runtime.transport.socket_client import SocketConnection
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.transport.conftest import CERTIFICATE
from tests.ps_runtime.transport.tls_peer import received, shaken

SECS = 200.0
PULL = Message(Kind.PULL)


@pytest.fixture
def stepped(probe) -> Iterator[SocketServer]:
    arena = Arena.shared(16)
    with SocketServer(probe, certificate=CERTIFICATE, arena=arena) as server:
        yield server
    arena.close()


# what a peer cannot do to a ps


def dial(server: SocketServer, family: int = socket.AF_UNIX) -> socket.socket:
    sock = socket.socket(family)
    address = server.address
    sock.connect("\0" + address.unix_name if family == socket.AF_UNIX else (address.host, address.tcp_port))
    sock.settimeout(200)
    return sock


def step(server: SocketServer) -> None:
    for _ in range(8):
        server.run_once(0)


def header(kind: Kind, length: int, flags: int) -> bytes:
    return encode_header(Message(kind), length, flags)


def ask(server: SocketServer, sock: socket.socket, data: bytes) -> tuple[Message, list[int]]:
    """Say `data`; return the reply, and the descriptors that came with it."""
    sock.sendall(data)
    step(server)
    words, descriptors, _, _ = socket.recv_fds(sock, 65536, 8)
    message, _ = decode_header(words[: HEADER.size])
    message.body = words[HEADER.size :]
    return message, descriptors


def share(server: SocketServer, sock: socket.socket) -> Mailbox:
    reply, (fd, arena_fd) = ask(server, sock, header(Kind.SHARE, 0, 0))
    os.close(arena_fd)
    request_bytes, reply_bytes, _ = struct.unpack("<QQQ", reply.body)
    return Mailbox.attach(fd, request_bytes, reply_bytes)


def refusal_of(server: SocketServer, sock: socket.socket, data: bytes) -> str:
    reply, descriptors = ask(server, sock, data)
    assert (reply.kind, descriptors) == (Kind.REFUSED, [])
    assert sock.recv(1) == b""
    return str(reply.json()["reason"])


def test_memory_is_shared_by_unix_sockets_alone(stepped):
    with shaken(dial(stepped, socket.AF_INET), CERTIFICATE, lambda: step(stepped), SECS) as sock:
        sock.sendall(header(Kind.SHARE, 0, 0))
        step(stepped)
        message, length = decode_header(received(sock, HEADER.size))
        assert message.kind is Kind.REFUSED
        assert b"expected SHARE once, after HELLO, over a Unix" in received(sock, length)


def test_memory_is_shared_only_with_who_was_let_in(stepped, probe):
    probe.max_body_bytes = lambda peer, kind: 4096 if kind is Kind.HELLO else 0
    with dial(stepped) as sock:
        assert "expected SHARE once, after HELLO" in refusal_of(stepped, sock, header(Kind.SHARE, 0, 0))


def test_memory_is_shared_once(stepped):
    with dial(stepped) as sock:
        share(stepped, sock).close()
        assert "after HELLO, over a Unix socket" in refusal_of(stepped, sock, header(Kind.SHARE, 0, 0))


@pytest.mark.parametrize(
    ("limit", "data", "reason"),
    [
        (100_000, header(Kind.PUSH, 100_001, IN_MAILBOX), "announced 100001 bytes as the body of PUSH, at most 100000"),
        (100_000, header(Kind.PUSH, 2**64 - 1, IN_MAILBOX), "announced 18446744073709551615 bytes as the body of PUSH"),
        (
            2**64,
            header(Kind.PUSH, 2**64 - 1, IN_MAILBOX),
            "announced 18446744073709551615 bytes in a mailbox of 100000",
        ),
    ],
)
def test_a_length_beyond_the_mailbox_is_refused(stepped, probe, limit, data, reason):
    probe.limit = 100_000
    with dial(stepped) as sock:
        mailbox = share(stepped, sock)
        probe.limit = limit
        assert reason in refusal_of(stepped, sock, data)
        mailbox.close()
    assert probe.seen == []


@pytest.mark.parametrize("flags", [IN_MAILBOX, 0x4000, 0xC000])
def test_a_body_in_a_mailbox_that_there_is_not_is_refused(stepped, flags):
    with dial(stepped) as sock:
        assert "in a mailbox that it does not have" in refusal_of(stepped, sock, header(Kind.PUSH, 10, flags))


def test_a_body_may_change_while_it_is_handled_and_only_its_sender_suffers(stepped, probe):
    with dial(stepped) as hostile, dial(stepped) as honest:
        mailbox, other = share(stepped, hostile), share(stepped, honest)
        body = mailbox.requests.room(100)
        lengths = []

        def handle(peer, message):
            lengths.append(len(message.body))
            body[:] = os.urandom(100)
            with pytest.raises(ProtocolError):
                message.json()
            return [(peer, Message(Kind.DONE))]

        probe.handle = handle
        assert ask(stepped, hostile, header(Kind.PUSH, 100, IN_MAILBOX))[0].kind is Kind.DONE
        mailbox.mark[0] = -(2**63) + 1
        mailbox.replies.room(1000)[:] = b"x" * 1000
        assert ask(stepped, honest, header(Kind.PUSH, 50, IN_MAILBOX))[0].kind is Kind.DONE
        assert lengths == [100, 50]
        body.release()
        mailbox.close()
        other.close()


def test_descriptors_that_a_peer_sends_are_dropped(stepped):
    with dial(stepped) as sock:
        before = len(os.listdir("/proc/self/fd"))
        socket.send_fds(sock, [header(Kind.PULL, 0, 0)], [0, 1, 2])
        step(stepped)
        assert sock.recv(HEADER.size)
        assert len(os.listdir("/proc/self/fd")) == before + 1  # the server's end


def test_a_peer_that_hangs_up_before_its_memory_comes_is_gone(stepped, probe):
    sock = dial(stepped)
    step(stepped)
    sock.sendall(header(Kind.SHARE, 0, 0))
    sock.close()
    step(stepped)
    assert stepped.statistics()["connections"] == 0
    assert probe.gone == []


# what a ps cannot do to a role


@pytest.fixture
def ends() -> Iterator[tuple[SocketConnection, socket.socket]]:
    ours, theirs = socket.socketpair()
    with SocketConnection(ours, "unix", "a test", "ps-0 at here", 1.0, 1000, "maybe") as connection, theirs:
        yield connection, theirs


def memfd(size: int, seals: bool = True) -> int:
    if seals:
        memory = SharedMemory.create(size)
        return os.dup(memory.fd)
    fd = os.memfd_create("loose", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd


@pytest.mark.parametrize(
    ("body", "sizes", "reason"),
    [
        (b"", [20480], "expected 24 bytes about its memory, got 0"),
        (struct.pack("<QQQ", 4096, 4096, 0), [], "expected 1 descriptors, got 0"),
        (struct.pack("<QQQ", 4096, 4096, 0), [20480, 4096], "expected 1 descriptors, got 2"),
        (struct.pack("<QQQ", 4096, 4096, 5000), [20480], "expected 2 descriptors, got 1"),
        (struct.pack("<QQQ", 4096, 4096, 16), [20480, 16], "expected 2 descriptors"),
        (struct.pack("<QQQ", 4096, 8192, 0), [20480], "it has 20480 bytes, expected 28672"),
        (struct.pack("<QQQ", 2**64 - 1, 0, 0), [20480], "it has 20480 bytes"),
        (struct.pack("<QQQ", 4096, 4096, 5000), [20480, 4999], "it has 4999 bytes, expected 5000"),
        (struct.pack("<QQQ", 4096, 4096, 0), [-20480], "its size can change"),
    ],
)
def test_memory_that_is_not_what_it_says_ends_the_connection(ends, body, sizes, reason):
    connection, ps = ends
    with pytest.raises(WaitTimeoutError):
        connection.share(0.001)
    fds = [memfd(abs(size), size > 0) for size in sizes]
    socket.send_fds(ps, [encode_header(Message(Kind.DONE), len(body)) + body], fds)
    for fd in fds:
        os.close(fd)
    for _ in range(2):
        with pytest.raises(ProtocolError, match=f"ps-0 at here broke the protocol: .*{reason}"):
            connection.share(SECS)
    assert connection.arena is None


def test_descriptors_that_came_before_a_peer_vanished_are_closed(ends):
    connection, ps = ends
    with pytest.raises(WaitTimeoutError):
        connection.share(0.001)
    fd = memfd(4096)
    socket.send_fds(ps, [encode_header(Message(Kind.DONE), 24)], [fd])
    os.close(fd)
    with pytest.raises(WaitTimeoutError):
        connection.share(0.001)
    ps.close()
    with pytest.raises(BrokenPeerError):
        connection.share(SECS)


def test_descriptors_that_nobody_asked_for_are_dropped(ends):
    connection, ps = ends
    connection.send(PULL)
    fds = [memfd(4096)]
    socket.send_fds(ps, [encode_header(Message(Kind.DONE), 0)], fds)
    os.close(fds[0])
    connection.receive(SECS)  # the leak guard of these tests counts


def test_a_refusal_by_a_ps_that_knows_no_sharing_is_told(ends):
    connection, ps = ends
    words = b'{"code": "protocol", "reason": "unknown message kind 20"}'
    ps.sendall(encode_header(Message(Kind.REFUSED), len(words)) + words)
    connection.share(SECS)
    assert connection.transport == "unix"
    assert connection.statistics()["why"] == "no shared memory: unknown message kind 20"
    connection.send(PULL)


@pytest.mark.parametrize(("length", "reason"), [(5000, "5000 bytes in a mailbox of 4096"), (1001, "at most 1000")])
def test_a_reply_beyond_the_mailbox_ends_the_connection(ends, length, reason):
    connection, ps = ends
    connection._max_reply_bytes = 1000 if length == 1001 else 1 << 20
    with pytest.raises(WaitTimeoutError):
        connection.share(0.001)
    fd = memfd(20480)
    socket.send_fds(ps, [encode_header(Message(Kind.DONE), 24) + struct.pack("<QQQ", 4096, 4096, 0)], [fd])
    os.close(fd)
    connection.share(SECS)
    connection.send(PULL)
    ps.sendall(encode_header(Message(Kind.PARAMETERS), length, IN_MAILBOX))
    with pytest.raises(ProtocolError, match=reason):
        connection.receive(SECS)
