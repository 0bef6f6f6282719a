"""Holds one connection of a server: its received and unsent bytes, and its turn."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import BrokenPeerError, ProtocolError
from psflow.ps_runtime.protocol.message import (
    HEADER,
    REPLY_IN_SECOND_HALF,
    Handler,
    Kind,
    Message,
    body_view,
    encode_header,
)
from psflow.ps_runtime.transport.inbox import INLINE_BYTES, Inbox, Mailbox
from psflow.ps_runtime.transport.reading import Marks

_NOTHING = memoryview(b"")
_MOST_SPARES = 2
"""More replies rarely wait at a time."""


class Spares:
    """Memory for the rest of replies, used again: new pages cost several times the copy into them."""

    def __init__(self) -> None:
        self._spares: list[memoryview] = []

    def take(self, nbytes: int) -> memoryview:
        """Return at least this many bytes; give them back when they are sent."""
        for index, spare in enumerate(self._spares):
            if len(spare) >= nbytes:
                return self._spares.pop(index)
        return np.empty(nbytes, np.uint8).data

    def give(self, spare: memoryview) -> None:
        """Take back a result of `take`."""
        self._spares = sorted([*self._spares, spare], key=len)[-_MOST_SPARES:]


class ServerConnection:
    """A peer of a `SocketServer`; nothing here waits for it."""

    __slots__ = (
        *("_arena", "_handler", "_inbox", "_outbox", "_spare", "_spares"),
        *("is_answered", "is_handled", "mailbox", "number", "socket"),
    )

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        handler: Handler,
        spares: Spares,
        arena: NDArray[np.uint8] | None = None,
    ) -> None:
        self.number = number
        self.socket = sock
        self.is_handled = False
        """Whether the handler has received a message of it."""
        self.is_answered = True
        """Whether its last request was answered, even if the answer is not completely sent."""
        self.mailbox: Mailbox | None = None
        self._handler = handler
        self._inbox = Inbox(sock, self._limit)
        self._outbox = _NOTHING
        self._spare = _NOTHING
        self._spares = spares
        self._arena = arena

    @property
    def transport(self) -> str:
        """How the peer connects: ``tcp``, ``unix`` or ``shm``."""
        if self.mailbox is not None:
            return "shm"
        return "unix" if self.socket.family == socket.AF_UNIX else "tcp"

    @property
    def is_sending(self) -> bool:
        """Whether a part of the last reply is still to be sent, by `flush`."""
        return len(self._outbox) > 0

    def read(self) -> Message | None:
        """Return the next request, or None if there is no whole one yet.

        Raises
        ------
        ProtocolError
            Also if it is not the peer's turn.
        BrokenPeerError
            If the peer is gone.
        """
        if self.is_answered and not self._outbox:
            return self._read()
        try:
            is_open = len(self.socket.recv(1)) > 0
        except BlockingIOError:
            return None
        except OSError as error:
            raise BrokenPeerError("peer", str(error)) from error
        if not is_open:
            raise BrokenPeerError("peer", "it closed the connection")
        raise ProtocolError("peer", "a second request came before the first was answered")

    def _read(self) -> Message | None:
        message = self._inbox.read()
        if message is not None and self.mailbox is not None:
            self.mailbox.replies.turn = 1 if self._inbox.transport_flags & REPLY_IN_SECOND_HALF else 0
            message.room = self._room
        return message

    def take_deposit(self) -> Message | None:
        """Return the request that the peer has deposited since the last call; None if there is none.

        Raises ProtocolError if it is invalid.
        """
        header = None if self.mailbox is None else self.mailbox.take_deposit()
        return None if header is None else self._inbox.deposited(header)

    def _room(self, nbytes: int) -> memoryview | None:
        return None if self.mailbox is None else self.mailbox.replies.room(nbytes)

    def send(self, message: Message) -> int:
        """Send as much of the reply as the kernel takes at once, keep a copy of the rest; return its length in bytes.

        Raises BrokenPeerError if the peer is gone.
        """
        self.is_answered = True
        body = body_view(message)
        total = HEADER.size + len(body) + len(message.tail)
        flags = 0
        if self.mailbox is not None and len(body) > INLINE_BYTES and not message.tail:
            flags = self.mailbox.replies.put(body)
        header = encode_header(message, total - HEADER.size, flags)
        if flags:
            body = _NOTHING
        elif message.tail:
            header, body = header + body, memoryview(message.tail)
        try:
            sent = self.socket.sendmsg((header, body)) if body else self.socket.send(header)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise BrokenPeerError("peer", str(error)) from error
        if sent < len(header) + len(body):
            if sent >= len(header) and self._is_of_arena(body):
                self._outbox = body[sent - len(header) :]
            else:
                self._keep(header[sent:], body[max(0, sent - len(header)) :])
        return total

    def flush(self) -> bool:
        """Send more of the last reply; return whether some is still left.

        Raises BrokenPeerError if the peer is gone.
        """
        try:
            sent = self.socket.send(self._outbox) if self._outbox else 0
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise BrokenPeerError("peer", str(error)) from error
        self._outbox = self._outbox[sent:]
        if not self._outbox and self._spare:
            self._spares.give(self._spare)
            self._spare = _NOTHING
        return self.is_sending

    def _is_of_arena(self, body: memoryview) -> bool:
        owner: object = body.obj
        return owner is self._arena

    def detach(self) -> None:
        """Copy the unsent part of the arena, which is about to change."""
        if self._outbox and not self._spare:
            self._keep(b"", self._outbox)

    def _keep(self, header: bytes, body: memoryview) -> None:
        """Copy the unsent part: it may change before it is sent."""
        nbytes = len(header) + len(body)
        self._spare = self._spares.take(nbytes)
        self._spare[: len(header)] = header
        self._spare[len(header) : nbytes] = body
        self._outbox = self._spare[:nbytes]

    def share(self, mailbox: Mailbox, reply: Message, descriptors: list[int]) -> int:
        """Send the reply that gives the peer its mailbox, and use that from now on; return the reply's length.

        Raises BrokenPeerError if the peer is gone.
        """
        self.is_answered = True
        self.mailbox = mailbox
        self._inbox.tray = mailbox.requests
        words = encode_header(reply, len(reply.body)) + bytes(reply.body)
        try:
            sent = socket.send_fds(self.socket, [words], descriptors)
        except OSError as error:
            raise BrokenPeerError("peer", str(error)) from error
        if sent < len(words):
            raise BrokenPeerError("peer", "it does not read")
        mailbox.memory.close_fd()
        return sent

    def close(self) -> None:
        """Close the socket, and release the mailbox and the arena."""
        self.socket.close()
        self._inbox.tray = self._arena = None
        self._outbox = _NOTHING
        if self.mailbox is not None:
            self.mailbox.close()

    def _limit(self, kind: Kind) -> int:
        if kind.is_reply:
            raise ProtocolError("peer", f"{kind.name} is not a request")
        return self._handler.max_body_bytes(self.number, kind)


class ArenaReaders:
    """`Readers`: all readers of a large arena: those that map it, and those that it is being sent to."""

    def __init__(self, marks: Marks, connections: Mapping[int, ServerConnection]) -> None:
        self._marks = marks
        self._connections = connections

    def begin(self, counter: int) -> None:  # noqa: D102
        self._marks.begin(counter)  # at once: a reader that sees the counter before the promise restarts
        for connection in self._connections.values():
            connection.detach()

    def await_past(self, stop: int) -> None:  # noqa: D102
        self._marks.await_past(stop)


def say_at_once(sock: socket.socket, words: Message) -> None:
    """Send a last message to a peer as far as the kernel takes it at once; ignore a peer that is gone."""
    body = body_view(words)
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.sendmsg((encode_header(words, len(body)), body))


class UnauthenticatedConnections:
    """Connections that have not authenticated yet, and their time limit.

    TCP connections may come from any process: they have few places, never shared with authenticated peers. If all are
    taken, the oldest one makes room: an honest peer says HELLO at once, and leaves this list at the next look.
    """

    def __init__(self, max_remote: int, timeout_secs: float) -> None:
        self._max_remote = max_remote
        self._timeout_secs = timeout_secs
        self._deadlines: dict[int, float] = {}  # oldest first
        self._remote: dict[int, None] = {}  # oldest first
        self._heard: set[int] = set()

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def num_remote(self) -> int:
        """Number of them that use TCP."""
        return len(self._remote)

    @property
    def next_deadline(self) -> float:
        """When the oldest one times out; infinite if there is none."""
        return next(iter(self._deadlines.values()), math.inf)

    def add(self, number: int, now: float, *, is_remote: bool) -> int | None:
        """Add connection `number`; return the number of the connection that must make room, if one must."""
        oldest = next(iter(self._remote)) if is_remote and len(self._remote) >= self._max_remote else None
        self._deadlines[number] = now + self._timeout_secs
        if is_remote:
            self._remote[number] = None
        return oldest

    def hear(self, number: int, now: float) -> None:
        """Restart the time of a connection at its first bytes: until then the ps may have been busy."""
        if number in self._deadlines and number not in self._heard:
            self._heard.add(number)
            del self._deadlines[number]
            self._deadlines[number] = now + self._timeout_secs  # the last again

    def is_remote(self, number: int) -> bool:
        """Whether connection `number` uses TCP and has not authenticated."""
        return number in self._remote

    def remove(self, number: int) -> None:
        """Remove connection `number`: it has authenticated, or is gone. Idempotent."""
        self._deadlines.pop(number, None)
        self._remote.pop(number, None)
        self._heard.discard(number)

    def late(self, now: float) -> list[int]:
        """Return the connections that have timed out."""
        return [number for number, deadline in self._deadlines.items() if deadline <= now]
