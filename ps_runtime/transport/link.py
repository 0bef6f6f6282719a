"""One connection as its server sees it: what came in so far, what is still to go out, and whose turn it is."""

from __future__ import annotations

import contextlib
import socket

from ps_runtime.errors import BrokenPeerError, ProtocolError
from ps_runtime.transport.base import Handler
from ps_runtime.transport.inbox import Inbox
from ps_runtime.transport.mailbox import INLINE_BYTES, Mailbox
from ps_runtime.transport.message import HEADER, REPLY_IN_SECOND_HALF, Kind, Message, body_view, encode_header

__all__ = ["Link", "say_at_once"]


_NOTHING = memoryview(b"")


class Link:
    """A peer of a `SocketServer`; nothing here ever waits for it.

    Parameters
    ----------
    number : int
        What the handler knows the peer by.
    sock : socket
        Non-blocking.
    handler : Handler
        Asked for the bounds of what the peer may send.
    """

    __slots__ = ("_handler", "_inbox", "_outbox", "is_answered", "is_handled", "mailbox", "number", "socket")

    def __init__(self, number: int, sock: socket.socket, handler: Handler) -> None:
        self.number = number
        self.socket = sock
        self.is_handled = False
        """Whether the handler has seen a message of it."""
        self.is_answered = True
        """Whether its last request was answered, even if the answer is still on its way out."""
        self.mailbox: Mailbox | None = None
        self._handler = handler
        self._inbox = Inbox(sock, self._limit)
        self._outbox = memoryview(b"")

    @property
    def transport(self) -> str:
        """How the peer comes: ``tcp``, ``unix`` or ``shm``."""
        if self.mailbox is not None:
            return "shm"
        return "unix" if self.socket.family == socket.AF_UNIX else "tcp"

    @property
    def is_sending(self) -> bool:
        """Whether a part of the last reply is still to go out, for `flush`."""
        return len(self._outbox) > 0

    def read(self) -> Message | None:
        """Return the next request, or None if there is no whole one yet.

        Raises
        ------
        ProtocolError
            Also if it is not the peer's turn.
        BrokenPeerError
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

    def _room(self, nbytes: int) -> memoryview | None:
        return None if self.mailbox is None else self.mailbox.replies.room(nbytes)

    def send(self, message: Message) -> int:
        """Send the reply as far as the kernel takes it at once, keep a copy of the rest; return its length in bytes.

        Raises
        ------
        BrokenPeerError
        """
        self.is_answered = True
        body = body_view(message)
        total = HEADER.size + len(body)
        flags = 0
        if self.mailbox is not None and len(body) > INLINE_BYTES:
            flags = self.mailbox.replies.put(body)
        header = encode_header(message, len(body), flags)
        if flags:
            body = _NOTHING
        try:
            sent = self.socket.sendmsg((header, body)) if body else self.socket.send(header)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise BrokenPeerError("peer", str(error)) from error
        if sent < HEADER.size + len(body):
            self._outbox = memoryview(header[sent:] + bytes(body[max(0, sent - HEADER.size) :]))
        return total

    def flush(self) -> bool:
        """Send more of the last reply; return whether some is still left.

        Raises
        ------
        BrokenPeerError
        """
        try:
            sent = self.socket.send(self._outbox) if self._outbox else 0
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise BrokenPeerError("peer", str(error)) from error
        self._outbox = self._outbox[sent:] if sent < len(self._outbox) else memoryview(b"")
        return self.is_sending

    def share(self, mailbox: Mailbox, reply: Message, descriptors: list[int]) -> int:
        """Send the reply that brings the peer its mailbox, and use that from now on; return the reply's length.

        Raises
        ------
        BrokenPeerError
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
            raise BrokenPeerError("peer", "it reads nothing")
        mailbox.memory.close_fd()
        return sent

    def close(self) -> None:
        """Give up the socket and the mailbox."""
        self.socket.close()
        self._inbox.tray = None
        if self.mailbox is not None:
            self.mailbox.close()

    def _limit(self, kind: Kind) -> int:
        if kind.is_reply:
            raise ProtocolError("peer", f"{kind.name} is no request")
        return self._handler.max_body_bytes(self.number, kind)


def say_at_once(sock: socket.socket, words: Message) -> None:
    """Say last words to a peer as far as the kernel takes them at once, and nothing if the peer is gone."""
    body = body_view(words)
    with contextlib.suppress(OSError):
        sock.setblocking(False)
        sock.sendmsg((encode_header(words, len(body)), body))
