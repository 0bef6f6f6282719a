"""Encrypts TCP connections by mutual TLS 1.3: both ends hold the one certificate of their job.

The `ssl` module works in memory here, and the socket stays an ordinary one: the timeouts of the kernel apply, and one
call of the kernel moves several records.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from psflow.ps_runtime.errors import BrokenPeerError, ProtocolError, TransportError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer, WriteableBuffer

_RECORD_BYTES, _CHUNK_BYTES = 16 * 1024, 64 * 1024
"""Given to the kernel at once: one record, so that the peer can begin, then four; and taken from it, at most."""


def server_context(certificate: str) -> ssl.SSLContext:
    """Return what a ps needs to prove that it holds a key and certificate, as PEM, and to have its peers prove it."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, certificate)
    context.num_tickets = 0  # each connection proves it anew
    return context


def client_context(certificate: str) -> ssl.SSLContext:
    """Return the same for a role that connects to a ps."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, certificate)


def _context(protocol: int, certificate: str) -> ssl.SSLContext:
    assert certificate, "TCP needs the certificate of the job"
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate is of a job, not of a host
    context.verify_mode = ssl.CERT_REQUIRED
    with _private_file(certificate) as path:
        context.load_cert_chain(path)
    context.load_verify_locations(cadata=certificate)  # the only one that is trusted
    return context


@contextmanager
def _private_file(text: str) -> Iterator[str]:
    """Yield the path of a file, in memory where the system can, because `ssl` reads keys only from files."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("psflow-key"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w") as file:  # mode 0600
            file.write(text)
            file.flush()
            yield file.name


class TlsSocket(socket.socket):
    """Stands in for a connected TCP socket, which it takes over: the same calls move the same bytes, encrypted.

    Notes
    -----
    As with OpenSSL, the bytes of a `send` that has raised BlockingIOError, and those that it has not taken, are to be
    sent next.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.is_open = False
        """Whether the handshake is complete: both ends hold the certificate."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        is_server = context.protocol is ssl.PROTOCOL_TLS_SERVER
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._is_drained = False
        """Whether all complete records that were received are decrypted and read."""
        self._num_encrypted = 0
        """How many bytes of the caller the unsent records hold."""
        self._unsent = memoryview(b"")
        timeout = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, sock.detach())
        self.settimeout(timeout)

    @property
    def has_more(self) -> bool:
        """Whether received bytes are here already, so that no selector reports them."""
        return self.is_open and not self._is_drained

    def shake_hands(self) -> None:
        """Complete the handshake, before anything can be sent.

        Raises
        ------
        BlockingIOError
            If the peer has not answered yet: call it again.
        BrokenPeerError, ProtocolError
            If the peer is gone; if the peer of a role, or of a ps, does not hold the certificate.
        """
        while not self.is_open:
            try:
                self._tls.do_handshake()
                self.is_open = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                with suppress(OSError):
                    self._push()  # the peer learns of it, too
                raise self._failure(error) from error
            self._push()
            if not self.is_open:
                self._take()

    def recv_into(self, buffer: WriteableBuffer, nbytes: int = 0, flags: int = 0) -> int:
        """Receive what is there, and fill `buffer` at most.

        Raises BlockingIOError also where only a part of a record is there; otherwise as `shake_hands`, which it
        continues.
        """
        if not self.is_open:
            self.shake_hands()
        elif self._is_drained:
            self._take()
        view = memoryview(buffer)
        received = 0
        try:
            while received < len(view):  # a call returns one record at most
                received += self._tls.read(len(view) - received, view[received:])  # type: ignore[operator]  # an int
            self._is_drained = not (self._incoming.pending or self._tls.pending())
        except ssl.SSLWantReadError:
            self._is_drained = True  # but for a part of a record
            if not received:
                raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            pass  # the peer has closed
        return received

    def recv(self, bufsize: int, flags: int = 0) -> bytes:  # noqa: D102
        view = memoryview(bytearray(bufsize))
        return bytes(view[: self.recv_into(view)])

    def sendmsg(self, buffers: Iterable[ReadableBuffer], *others: Any) -> int:
        """Send as much as the kernel takes; return how much of the bytes that is."""
        if not self.is_open:
            raise OSError(errno.ENOTCONN, "the TLS handshake is not complete")
        first, *rest = (memoryview(buffer) for buffer in buffers)
        sent, enough = 0, _RECORD_BYTES
        try:
            if self._num_encrypted:
                sent = self._push()
                first = first[sent:]
            for view in (first, *rest):
                while view:
                    num_bytes = self._tls.write(view[:enough])
                    view = view[num_bytes:]
                    self._num_encrypted += num_bytes
                    if self._num_encrypted >= enough:
                        sent += self._push()
                        enough = _CHUNK_BYTES
            sent += self._push()
        except BlockingIOError:
            if not sent:
                raise
        return sent

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:  # noqa: D102
        return self.sendmsg((data,))

    def sendall(self, data: ReadableBuffer, flags: int = 0) -> None:  # noqa: D102
        view = memoryview(data)
        while view:
            view = view[self.send(view) :]

    def _push(self) -> int:
        """Send all records; return how many bytes of the caller they hold."""
        while self._unsent or self._outgoing.pending:
            self._unsent = self._unsent or memoryview(self._outgoing.read())
            self._unsent = self._unsent[super().send(self._unsent) :]
        num_bytes, self._num_encrypted = self._num_encrypted, 0
        return num_bytes

    def _take(self) -> None:
        """Receive records, or parts of them."""
        data = super().recv(_CHUNK_BYTES)
        if not data:
            raise BrokenPeerError("peer", "it closed the connection")
        self._incoming.write(data)

    def _failure(self, error: ssl.SSLError) -> TransportError:
        why = getattr(error, "verify_message", "") or (error.reason or str(error)).lower().replace("_", " ")
        fault = f"it does not hold the certificate of this job ({why})"
        if self._tls.server_side:
            return ProtocolError("peer", fault)
        remedy = "run the same command again; if it fails again, find the program that listens there, or stands between"
        return BrokenPeerError("peer", f"{fault}, so it belongs to another job or program; {remedy}")

    def _not_encrypted(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("this call would bypass TLS")

    recvfrom = recvfrom_into = recvmsg = recvmsg_into = sendfile = sendto = _not_encrypted
