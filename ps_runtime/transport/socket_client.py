"""Connects a role to a ps over TCP or a Unix socket: a blocking socket, header and body never joined.

Over a Unix socket the two may share memory; large bodies then lie there, and the socket carries their headers.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
from functools import partial
from typing import Literal

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import (
    BrokenPeerError,
    ClosedError,
    ProtocolError,
    PsflowError,
    RefusedError,
    UsageError,
    WaitTimeoutError,
)
from psflow.ps_runtime.protocol.message import (
    HEADER,
    MAX_JSON_BYTES,
    REPLY_IN_SECOND_HALF,
    Kind,
    Message,
    body_view,
    encode_header,
    refused_error,
)
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.inbox import INLINE_BYTES, Inbox
from psflow.ps_runtime.transport.shared_memory import why_no_shared_memory
from psflow.ps_runtime.transport.sharing import Descriptors, Shared, no_sharing, take_over
from psflow.ps_runtime.transport.tls import TlsSocket
from psflow.ps_runtime.transport.waiting import Spin

Sharing = Literal["never", "maybe", "must"]
"""Whether a connection shares memory with its ps."""

_TIMEVAL = struct.Struct("@ll")
_LAST_WORDS_SECS = 1.0
_NOTHING = memoryview(b"")


class SocketConnection(Connection):
    """The result of `connect`; it owns the connected socket that it is given."""

    def __init__(
        self,
        sock: socket.socket,
        transport: str,
        why: str,
        peer: str,
        send_timeout_secs: float,
        max_reply_bytes: int,
        sharing: Sharing = "never",
        awake_secs: float = 0.0,
    ) -> None:
        self.peer = peer
        self.transport = transport
        self._why = why
        self._socket = sock
        self._max_reply_bytes = max_reply_bytes
        self._inbox = Inbox(sock, self._limit)
        self._sharing = sharing
        self._shared: Shared | None = None
        self._descriptors = Descriptors(sock)
        self._is_waiting = self._has_deposited = False
        self._end: PsflowError | None = None
        self._receive_timeout_secs = 0.0
        self._num_requests = self._bytes_out = self._bytes_in = 0
        self._send_timeout_secs = send_timeout_secs
        self._set_timeout(socket.SO_SNDTIMEO, send_timeout_secs)
        arrivals = select.poll()
        arrivals.register(sock, select.POLLIN)
        self._look = partial(arrivals.poll, 0)
        self._spin = Spin(self._look, awake_secs)

    def shake_hands(self, timeout_secs: float) -> None:  # noqa: D102
        if self._end is not None:
            raise self._end
        deadline = Deadline(timeout_secs)
        while isinstance(self._socket, TlsSocket) and not self._socket.is_open:
            self._limit_receiving(deadline.remaining_secs)
            try:
                self._socket.shake_hands()
            except BlockingIOError:
                if deadline.has_passed:
                    raise WaitTimeoutError(self.peer, "complete the TLS handshake", timeout_secs) from None
            except BrokenPeerError as error:
                raise self._broken(BrokenPeerError(self.peer, error.reason)) from error.__cause__
            except OSError as error:
                raise self._broken(BrokenPeerError(self.peer, error.strerror or str(error))) from error

    def send(self, message: Message) -> None:  # noqa: D102
        if self._end is not None:
            raise self._end
        if self._is_waiting:
            raise ProtocolError("this role", "it sent a request before it received the reply to the last one")
        body = body_view(message)
        num_bytes = HEADER.size + len(body)
        flags = 0
        if self._shared is not None:
            if len(body) > INLINE_BYTES:
                flags = self._shared.mailbox.requests.put(body)
                if flags:
                    body = _NOTHING
            if self._shared.mailbox.replies.turn:
                flags |= REPLY_IN_SECOND_HALF
        header = encode_header(message, num_bytes - HEADER.size, flags)
        try:
            sent = self._socket.sendmsg((header, body)) if body else self._socket.send(header)
            if sent < HEADER.size + len(body):
                self._send_rest(header, body, sent)
        except BlockingIOError:
            reason = f"it read nothing of {message.kind.name} for {self._send_timeout_secs:g} s"
            raise self._broken(BrokenPeerError(self.peer, reason)) from None
        except OSError as error:
            raise self._last_words(error) from error
        except BaseException:
            self.close()  # a part of the request is sent, so no other can follow it
            raise
        self._is_waiting = True
        self._num_requests += 1
        self._bytes_out += num_bytes

    def deposit(self, message: Message) -> bool:  # noqa: D102
        if self._end is not None:
            raise self._end
        if self._is_waiting or self._has_deposited:
            raise ProtocolError("this role", "it deposited a request before it received the reply to the last one")
        if self._shared is None or not self._shared.mailbox.takes_deposits:
            return False
        body = body_view(message)
        flags = self._shared.mailbox.requests.put(body)
        if not flags:
            return False
        self._shared.mailbox.deposit(encode_header(message, len(body), flags))
        if self._look():  # after the deposit: a ps that ends this connection from now on looks for it before
            raise self._last_words(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        self._has_deposited = True
        self._num_requests += 1
        self._bytes_out += HEADER.size + len(body)
        return True

    def receive(self, timeout_secs: float, into: memoryview | None = None) -> Message:  # noqa: D102
        if self._end is not None:
            raise self._end
        if not self._is_waiting:
            raise ProtocolError("this role", "it waits for a reply but has sent no request")
        message = self._await(timeout_secs, into)
        self._is_waiting = self._has_deposited = False
        if self._shared is not None:
            self._shared.take_turns(self._inbox.transport_flags)
        self._bytes_in += HEADER.size + len(message.body)
        if message.kind is Kind.REFUSED:
            raise refused_error(self.peer, message)
        return message

    def share(self, timeout_secs: float) -> None:  # noqa: D102
        if self._sharing == "never":
            return
        impossible = why_no_shared_memory() or self._ask_to_share(timeout_secs)
        if not impossible:
            self.transport = "shm"
        elif self._sharing == "must":
            raise UsageError((no_sharing(self.peer, impossible),))
        else:
            self._why = f"no shared memory: {impossible}"
        self._sharing = "never"

    def outbox(self, nbytes: int) -> memoryview | None:  # noqa: D102
        if self._shared is None or (self._has_deposited and self._is_waiting):
            return None
        return self._shared.mailbox.requests.room(nbytes)

    def keep(self) -> bool:  # noqa: D102
        return self._shared is not None and self._shared.keep(self._inbox.transport_flags)

    def statistics(self) -> dict[str, int | str]:  # noqa: D102
        return {
            "peer": self.peer,
            "transport": self.transport,
            "why": self._why,
            "requests": self._num_requests,
            "bytes_out": self._bytes_out,
            "bytes_in": self._bytes_in,
        }

    def close(self) -> None:  # noqa: D102
        self._give_up(ClosedError(f"the connection to {self.peer}"))

    def _ask_to_share(self, timeout_secs: float) -> str:
        """Take over the shared memory of the ps; return why it shares none, or an empty string."""
        if not self._is_waiting:  # otherwise an earlier call timed out
            self.send(Message(Kind.SHARE))
            self._inbox.recv_into = self._descriptors.recv_into
        try:
            reply = self.receive(timeout_secs)
            self._shared = take_over(reply, self._descriptors.received)
        except RefusedError as error:
            reason = error.reason
        except ProtocolError as error:
            raise self._broken(ProtocolError(self.peer, error.reason)) from error
        except OSError as error:
            fault = f"the memory of {self.peer} cannot be mapped here: {error}; choose the transport unix or tcp"
            raise self._broken(UsageError((fault,))) from error
        else:
            self.arena = self._shared.arena
            self._inbox.tray = self._shared.mailbox.replies
            reason = ""
        self._descriptors.close()
        self._inbox.recv_into = self._socket.recv_into
        return reason

    def _send_rest(self, header: bytes, body: memoryview, sent: int) -> None:
        if sent < HEADER.size:
            self._socket.sendall(header[sent:])
            sent = HEADER.size
        self._socket.sendall(body[sent - HEADER.size :])

    def _await(self, timeout_secs: float, into: memoryview | None) -> Message:
        deadline = Deadline(timeout_secs)
        remaining_secs = timeout_secs
        is_there = self._spin.begin(timeout_secs)
        while True:
            if remaining_secs != self._receive_timeout_secs:
                self._limit_receiving(remaining_secs)
            message = self._read(into)
            if not is_there:
                self._spin.slept(was_enough=message is not None)
            if message is not None:
                return message
            remaining_secs = deadline.remaining_secs
            if not remaining_secs:
                raise WaitTimeoutError(self.peer, "reply", timeout_secs)

    def _read(self, into: memoryview | None) -> Message | None:
        try:
            return self._inbox.read(into)
        except BrokenPeerError as error:
            raise self._broken(BrokenPeerError(self.peer, error.reason)) from error.__cause__
        except ProtocolError as error:
            raise self._broken(ProtocolError(self.peer, error.reason)) from None

    def _limit(self, kind: Kind) -> int:
        if not kind.is_reply:
            raise ProtocolError(self.peer, f"{kind.name} is not a reply")
        return min(self._max_reply_bytes, MAX_JSON_BYTES) if kind is Kind.REFUSED else self._max_reply_bytes

    def _last_words(self, error: OSError) -> PsflowError:
        """Return why a request could not be sent: a refusing peer reports the reason before it disconnects."""
        try:
            message = self._await(_LAST_WORDS_SECS, None)
            why: PsflowError = refused_error(self.peer, message)
        except PsflowError:
            why = BrokenPeerError(self.peer, error.strerror or str(error))
        return self._broken(why)

    def _broken(self, error: PsflowError) -> PsflowError:
        """Close the connection; later calls raise `error`, too."""
        self._give_up(error)
        return error

    def _give_up(self, end: PsflowError) -> None:
        self._end = end
        self._socket.close()
        self._descriptors.close()
        if self._shared is not None:
            self._shared.close()
            self._shared = self.arena = self._inbox.tray = None

    def _limit_receiving(self, timeout_secs: float) -> None:
        self._set_timeout(socket.SO_RCVTIMEO, timeout_secs)
        self._receive_timeout_secs = timeout_secs

    def _set_timeout(self, option: int, timeout_secs: float) -> None:
        # the kernel's own timeout saves the poll that Python makes before each call of a socket with settimeout
        micros = max(1, round(timeout_secs * 1e6))  # zero would mean no limit
        self._socket.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(*divmod(micros, 1_000_000)))
