"""What hostile bytes do to a ps on sockets, shared memory or not: nothing. Stepped manually: no threads, no waiting."""

from __future__ import annotations

import dataclasses
import os
import pickle
import socket
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from psflow.ps_runtime.protocol.message import HEADER, MAGIC, Kind, Message, decode_header, encode_header
from psflow.ps_runtime.transport import listeners
from psflow.ps_runtime.transport.listeners import Address, unix_path
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.transport.conftest import CERTIFICATE
from tests.ps_runtime.transport.tls_peer import received, shaken

PULL = encode_header(Message(Kind.PULL), 0)
SHARE = encode_header(Message(Kind.SHARE), 0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclasses.dataclass
class Scene:
    """A ps of all transports, and as many peers as a test wants; with "shm" they share its memory, but map nothing."""

    kind: str
    server: SocketServer
    clock: Clock
    opened: list[socket.socket]

    def dial(self) -> socket.socket:
        address: Address = self.server.address
        sock = socket.socket(socket.AF_INET if self.kind == "tcp" else socket.AF_UNIX)
        sock.connect((address.host, address.tcp_port) if self.kind == "tcp" else unix_path(address.unix_name))
        if self.kind == "tcp":
            sock = shaken(sock, CERTIFICATE, self.step, 200)
        self.opened.append(sock)
        sock.settimeout(3)
        self.step()
        if self.kind == "shm" and self.server.statistics()["connections"] == len(self.opened):
            self.say(sock, SHARE)
            _, descriptors, _, _ = socket.recv_fds(sock, 4096, 4)
            for fd in descriptors:
                os.close(fd)
        return sock

    def step(self) -> None:
        for _ in range(12):
            self.server.run_once(0)

    def say(self, sock: socket.socket, data: bytes) -> None:
        sock.sendall(data)
        self.step()

    def is_served(self, sock: socket.socket) -> bool:
        self.say(sock, PULL)
        header = received(sock, HEADER.size)
        message, length = decode_header(header)
        return message.kind is Kind.PARAMETERS and len(received(sock, length)) == length

    def close(self) -> None:
        for sock in self.opened:
            sock.close()
        self.server.close()


def words_of(sock: socket.socket) -> dict[str, object]:
    """Return what the ps said when it refused, and check that it hung up after it."""
    message, length = decode_header(received(sock, HEADER.size))
    assert message.kind is Kind.REFUSED
    message.body = received(sock, length)
    assert is_hung_up(sock)
    return message.json()


def is_hung_up(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


sockets_alone = pytest.mark.parametrize("scene", ["unix", "tcp"], indirect=True)
"""For what sharing memory ends: it is an acceptable message, and replies that lie there need nobody who reads."""


@pytest.fixture(params=["unix", "tcp", "shm"])
def scene(request: pytest.FixtureRequest, probe) -> Iterator[Scene]:
    clock = Clock()
    limits = {"max_connections": 4, "max_unauthenticated": 4, "hello_timeout_secs": 5.0}
    server = SocketServer(probe, certificate=CERTIFICATE, clock=clock, **limits)
    scene = Scene(request.param, server, clock, [])
    yield scene
    scene.close()


def header(kind: int, length: int, magic: bytes = MAGIC) -> bytes:
    return HEADER.pack(magic, kind, 0, 0, 0, 0, 0, 0, 0, length)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (header(Kind.PULL, 0, b"HTTP"), "expected the magic b'psf1', got b'HTTP'"),
        (header(9999, 0), "unknown message kind 9999"),
        (header(Kind.DONE, 0), "DONE is not a request"),
        (header(Kind.PUSH, 2**64 - 1), "announced 18446744073709551615 bytes as the body of PUSH, at most 16777216"),
        (pickle.dumps({"a": list(range(100))}), "expected the magic"),
    ],
)
def test_garbage_is_refused_with_the_reason(scene, probe, data, reason):
    honest, hostile = scene.dial(), scene.dial()
    assert scene.is_served(honest)
    scene.say(hostile, data)
    words = words_of(hostile)
    assert words["code"] == "protocol"
    assert reason in words["reason"]
    assert scene.is_served(honest)
    assert [kind for _, kind, _ in probe.seen] == [Kind.PULL, Kind.PULL]
    assert probe.gone == []
    assert scene.server.statistics()["connections"] == 1


@pytest.mark.parametrize("data", [PULL[:17], header(Kind.PUSH, 1000) + b"x" * 999])
def test_a_message_cut_short_is_forgotten(scene, probe, data):
    honest, hostile = scene.dial(), scene.dial()
    scene.say(hostile, data)
    assert scene.is_served(honest)
    hostile.shutdown(socket.SHUT_WR)
    scene.step()
    assert is_hung_up(hostile)
    assert scene.is_served(honest)
    assert [kind for _, kind, _ in probe.seen] == [Kind.PULL, Kind.PULL]
    assert probe.gone == []


def test_a_message_may_come_byte_by_byte(scene, probe):
    slow, honest = scene.dial(), scene.dial()
    for byte in header(Kind.PUSH, 3) + b"abc":
        scene.say(slow, bytes([byte]))
        assert scene.is_served(honest)
    assert (1, Kind.PUSH, b"abc") in probe.seen


def test_memory_follows_what_came_and_not_what_was_announced(scene, probe):
    probe.limit = 1 << 40
    hostile = scene.dial()
    tracemalloc.start()
    try:
        scene.say(hostile, header(Kind.PUSH, 1 << 40) + b"x" * 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert scene.server.statistics()["connections"] == 1


def test_a_second_request_while_the_first_is_held_breaks_the_protocol(scene, probe):
    hostile = scene.dial()
    scene.say(hostile, header(Kind.AWAIT_SNAPSHOT, 0))
    scene.say(hostile, PULL)
    assert words_of(hostile)["reason"] == "a second request came before the first was answered"
    assert [kind for _, kind, _ in probe.seen] == [Kind.AWAIT_SNAPSHOT]
    assert len(probe.gone) == 1


@sockets_alone
def test_a_peer_that_asks_but_never_reads_is_dropped_in_the_end(scene, probe):
    probe.arena = bytearray(1 << 24)
    hostile, honest = scene.dial(), scene.dial()
    scene.say(hostile, PULL * 3)
    probe.arena = bytearray(16)
    assert scene.is_served(honest)
    assert sum(peer == 1 for peer, _, _ in probe.seen) < 3
    assert probe.gone == [1]


def test_a_peer_that_vanishes_as_its_held_reply_comes_is_gone_once(scene, probe):
    leaving, honest = scene.dial(), scene.dial()
    scene.say(leaving, header(Kind.AWAIT_SNAPSHOT, 0))
    honest.sendall(header(Kind.COMMITTED, 0))
    leaving.close()  # both are ready in one round
    scene.step()
    assert decode_header(received(honest, HEADER.size))[0].kind is Kind.DONE
    assert probe.gone == [1]
    assert scene.is_served(honest)


@sockets_alone
def test_a_flood_of_hellos_is_answered_one_by_one(scene, probe):
    probe.handle = lambda peer, message: [(peer, Message(Kind.DONE))]
    flood, honest = scene.dial(), scene.dial()
    flood.sendall(header(Kind.HELLO, 0) * 1000)
    honest.sendall(header(Kind.HELLO, 0))
    scene.server.run_once(0)
    message, _ = decode_header(received(honest, HEADER.size))
    assert message.kind is Kind.DONE
    assert scene.server.statistics()["messages"] == 2


@sockets_alone
def test_who_says_nothing_acceptable_in_time_is_dropped(scene, probe):
    honest, silent, half = scene.dial(), scene.dial(), scene.dial()
    assert scene.is_served(honest)
    scene.say(half, PULL[:20])
    scene.clock.now += 4.9
    scene.step()
    assert scene.server.statistics()["connections"] == 3
    scene.clock.now += 0.2
    scene.step()
    for sock in (silent, half):
        assert words_of(sock) == {"code": "late", "reason": "no valid HELLO came within 5 s"}
    assert scene.is_served(honest)
    assert probe.gone == []


def test_no_more_peers_than_there_is_room_for(scene):
    peers = [scene.dial() for _ in range(4)]
    assert all(scene.is_served(peer) for peer in peers)
    last = scene.dial()
    if scene.kind == "tcp":  # nobody knew who it is
        scene.say(last, PULL)
    words = words_of(last)
    assert (words["code"], words["reason"]) == ("full", "this ps has 4 connections, its maximum")
    peers[0].close()
    scene.step()
    assert scene.is_served(scene.dial())


def test_who_does_not_say_hello_over_tcp_gives_way_to_the_next_and_takes_no_seat(probe):
    with SocketServer(probe, certificate=CERTIFICATE, max_connections=2, max_unauthenticated=3) as server:
        scene, beside = Scene("tcp", server, Clock(), []), Scene("unix", server, Clock(), [])
        known = scene.dial()
        assert scene.is_served(known)
        silent = [scene.dial() for _ in range(20)]
        for sock in silent[:-3]:
            words = words_of(sock)
            assert words["code"] == "full"
            assert "3 connections, the most allowed, have sent no HELLO" in words["reason"]
        assert server.statistics()["connections"] == 4
        assert scene.is_served(known)
        assert beside.is_served(beside.dial())
        for one in (scene, beside):
            for sock in one.opened:
                sock.close()


def test_who_could_not_be_listened_to_has_its_time_still(probe):
    clock = Clock()
    with SocketServer(probe, certificate=CERTIFICATE, hello_timeout_secs=5.0, clock=clock) as server:
        scene = Scene("tcp", server, clock, [])
        busy = scene.dial()
        handle, probe.handle = probe.handle, lambda *given: setattr(clock, "now", clock.now + 60.0) or handle(*given)
        address = server.address
        with busy, socket.create_connection((address.host, address.tcp_port)) as connected:
            busy.sendall(PULL)
            # while the ps deals with the first for a minute, the second waits
            late = shaken(connected, CERTIFICATE, scene.step, 200)
            scene.say(late, PULL)
            assert decode_header(received(late, HEADER.size))[0].kind is Kind.PARAMETERS


def test_another_user_is_turned_away_from_the_unix_socket(scene, monkeypatch):
    monkeypatch.setattr(listeners.os, "geteuid", lambda: 12345)
    sock = scene.dial()
    if scene.kind != "tcp":
        assert words_of(sock)["code"] == "another-user"
    assert scene.server.statistics()["connections"] == (1 if scene.kind == "tcp" else 0)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=4),
    start=st.sampled_from([b"", MAGIC, PULL, header(Kind.PUSH, 50), header(Kind.FETCH, 3)]),
)
def test_random_bytes(scene, probe, chunks, start):
    probe.limit = 1000
    honest, hostile = scene.dial(), scene.dial()
    assert scene.is_served(honest)
    for chunk in [start, *chunks]:
        try:
            scene.say(hostile, chunk)
        except OSError:
            break
    assert scene.is_served(honest)
    honest.close()
    hostile.close()
    scene.step()
    assert scene.server.statistics()["connections"] == 0
    assert all(not kind.is_reply and len(body) <= 1000 for _, kind, body in probe.seen)
