"""What TLS keeps from a ps and from a role, and what it must not change. Stepped where the ps is psflow's own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.errors import BrokenPeerError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import HEADER, Kind, Message, decode_header, encode_header
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.listeners import Address
from psflow.ps_runtime.transport.socket_client import SocketConnection
from psflow.ps_runtime.transport.socket_server import SocketServer
from psflow.ps_runtime.transport.tls import TlsSocket, client_context, server_context
from tests.ps_runtime.transport.conftest import CERTIFICATE, Probe
from tests.ps_runtime.transport.tls_peer import received, shaken

SECS = 200.0
TIMEOUT_SECS = 5.0
PULL = encode_header(Message(Kind.PULL), 0)
FOREIGN = new_pem()
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a handshake, of 512 bytes."""


class Scene:
    """A ps on TCP whose clock stands still, and an honest peer."""

    def __init__(self, probe: Probe) -> None:
        self.now = 100.0
        self.probe = probe
        limits = {"max_unauthenticated": 4, "hello_timeout_secs": TIMEOUT_SECS}
        self.server = SocketServer(
            probe, unix=False, certificate=CERTIFICATE, clock=lambda: self.now, max_connections=4, **limits
        )
        self.honest = shaken(self.dial(), CERTIFICATE, self.step, SECS)

    def dial(self) -> socket.socket:
        address = self.server.address
        sock = socket.create_connection((address.host, address.tcp_port), SECS)
        self.step()
        return sock

    def step(self) -> None:
        for _ in range(12):
            self.server.run_once(0)

    def serves(self) -> bool:
        """Return whether the honest peer gets an answer, and nobody else was listened to."""
        self.honest.sendall(PULL)
        self.step()
        message, length = decode_header(received(self.honest, HEADER.size))
        received(self.honest, length)
        return message.kind is Kind.PARAMETERS and {peer for peer, _, _ in self.probe.seen} == {1}


@pytest.fixture
def scene(probe) -> Iterator[Scene]:
    scene = Scene(probe)
    yield scene
    scene.honest.close()
    scene.server.close()


def plain(scene: Scene, sock: socket.socket) -> None:
    sock.sendall(PULL)


def of_no_certificate(scene: Scene, sock: socket.socket) -> None:
    shaken(sock, None, scene.step, SECS).sendall(PULL)


def of_a_foreign_certificate(scene: Scene, sock: socket.socket) -> None:
    trusting = client_context(FOREIGN)
    trusting.verify_mode = ssl.CERT_NONE
    shaken(sock, trusting, scene.step, SECS).sendall(PULL)


def of_an_older_version(scene: Scene, sock: socket.socket) -> None:
    context = client_context(CERTIFICATE)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    shaken(sock, context, scene.step, SECS)


@pytest.mark.parametrize("come", [plain, of_no_certificate, of_a_foreign_certificate, of_an_older_version])
def test_a_peer_that_does_not_hold_the_certificate_is_refused_and_changes_nothing(scene, come):
    assert scene.serves()
    sock = scene.dial()
    with suppress(OSError):  # the ps has hung up
        come(scene, sock)
    scene.step()
    sock.close()
    statistics = scene.server.statistics()
    assert (statistics["connections"], statistics["refused"]) == (1, 1)
    assert scene.serves()


def test_a_peer_learns_why_it_is_refused(scene):
    with (
        shaken(scene.dial(), None, scene.step, SECS) as peer,
        pytest.raises(ssl.SSLError, match="certificate required"),
    ):
        peer.recv(1)


def test_no_ticket_opens_another_connection(scene):
    assert scene.serves()
    assert not scene.honest.session.has_ticket


@pytest.mark.parametrize("beginning", [b"", CLIENT_HELLO])
def test_a_handshake_that_stalls_ends_in_time(scene, beginning):
    assert scene.serves()
    with scene.dial() as sock:
        scene.now += TIMEOUT_SECS - 1.0
        sock.sendall(beginning)
        scene.step()
        # the time starts again at the first bytes, and only there
        for _ in range(4 if beginning else 0):
            scene.now += 1.0
            sock.sendall(b"\0")
            scene.step()
        assert scene.server.statistics()["connections"] == 2
        assert not scene.server._posted  # the ps sleeps until more comes
        scene.now += 1.1
        scene.step()
        assert scene.server.statistics()["connections"] == 1
        assert scene.server.statistics()["refused"] == 1
    assert scene.serves()


def test_requests_that_came_in_one_record_are_all_answered(scene):
    """The second is in memory after the first, where no selector sees it."""
    scene.probe.handle = lambda peer, message: [(peer, Message(Kind.DONE))]
    scene.honest.sendall(PULL * 5)
    scene.step()
    for _ in range(5):
        assert decode_header(received(scene.honest, HEADER.size))[0].kind is Kind.DONE


# what a role does with a ps


class Impostor:
    """Listens in place of a ps, with a certificate or without TLS, and keeps what it is sent."""

    def __init__(self, certificate: str | None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = None if certificate is None else server_context(certificate)
        self.received = b""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._listener.getsockname()[1], None, "")

    def _serve(self) -> None:
        sock, _ = self._listener.accept()
        with suppress(OSError):
            sock.settimeout(SECS)
            if self._context is None:
                sock.recv(1)
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            else:
                self._context.verify_mode = ssl.CERT_NONE
                sock = self._context.wrap_socket(sock, server_side=True)
                self.received = sock.recv(4096)
        sock.close()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(SECS)


@pytest.mark.parametrize(("certificate", "why"), [(FOREIGN, "self-signed certificate"), (None, "wrong version number")])
def test_a_role_sends_nothing_to_a_program_with_another_certificate(certificate, why):
    impostor = Impostor(certificate)
    connection = connect(impostor.address, "tcp", SECS, "ps-1", certificate=CERTIFICATE)
    words = rf"^no connection to ps-1 at 127.0.0.1:\d+: it does not hold the certificate of this job \({why}\), so it"
    with pytest.raises(BrokenPeerError, match=words) as caught:
        connection.shake_hands(SECS)
    impostor.close()
    assert impostor.received == b""
    assert "run the same command again; if it fails again, find the program" in str(caught.value)
    with pytest.raises(BrokenPeerError, match="does not hold the certificate"):
        connection.send(Message(Kind.PULL))


def test_a_request_before_the_handshake_is_an_error(scene):
    with connect(scene.server.address, "tcp", certificate=CERTIFICATE) as connection:
        connection._socket.shutdown(socket.SHUT_RD)
        with pytest.raises(BrokenPeerError, match="the TLS handshake is not complete"):
            connection.send(Message(Kind.PULL))
    assert scene.serves()


def test_a_handshake_goes_on_after_a_timeout(scene):
    with connect(scene.server.address, "tcp", SECS, "ps-0", certificate=CERTIFICATE) as connection:
        for _ in range(2):
            with pytest.raises(
                WaitTimeoutError, match=r"^ps-0 at .* did not complete the TLS handshake within 0.002 s$"
            ):
                connection.shake_hands(0.002)
        scene.step()
        connection.shake_hands(SECS)
        connection.shake_hands(SECS)
        connection.send(Message(Kind.PULL))
        with pytest.raises(WaitTimeoutError):
            connection.receive(0.002)
        scene.step()
        assert connection.receive(SECS).kind is Kind.PARAMETERS


def test_a_reply_that_arrives_byte_by_byte_survives_timeouts():
    """As over a Unix socket, whatever part of a record is there when the time is over."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours, between = socket.create_connection(listener.getsockname()), listener.accept()[0]
    theirs, beyond = socket.socketpair()
    ps = TlsSocket(theirs, server_context(CERTIFICATE))
    role = TlsSocket(ours, client_context(CERTIFICATE))
    for sock in (between, ps, beyond):
        sock.setblocking(False)
    data = encode_header(Message(Kind.PARAMETERS, version=4), 100) + bytes(range(100))
    with listener, between, beyond, ps, SocketConnection(role, "tcp", "a test", "ps-0", 1.0, 1000) as connection:
        while not ps.is_open:
            with suppress(WaitTimeoutError):
                connection.shake_hands(0.001)
            with suppress(BlockingIOError):
                beyond.sendall(between.recv(65536))
            with suppress(BlockingIOError):
                ps.shake_hands()
            with suppress(BlockingIOError):
                between.sendall(beyond.recv(65536))
        connection.send(Message(Kind.PULL))
        ps.sendall(data)
        encrypted = beyond.recv(65536)
        assert data[-50:] not in encrypted
        into = memoryview(bytearray(100))
        for index in range(len(encrypted) - 1):
            between.sendall(encrypted[index : index + 1])
            if index % 40 == 0:
                with pytest.raises(WaitTimeoutError):
                    connection.receive(0.001, into)
        between.sendall(encrypted[-1:])
        message = connection.receive(SECS, into)
    assert message.body is into
    assert bytes(into) == bytes(range(100))


def test_no_call_of_a_socket_bypasses_tls():
    ours, theirs = socket.socketpair()
    with theirs, TlsSocket(ours, client_context(CERTIFICATE)) as sock:
        for call in (sock.sendto, sock.sendfile, sock.recvfrom, sock.recvfrom_into, sock.recvmsg, sock.recvmsg_into):
            with pytest.raises(NotImplementedError, match="this call would bypass TLS"):
                call(b"x")
