"""Bytes of a socket on their way to whole messages."""

from __future__ import annotations

import socket
from collections.abc import Callable

import numpy as np

from psflow.ps_runtime.errors import BrokenPeerError, ProtocolError
from psflow.ps_runtime.protocol.message import (
    HEADER,
    IN_MAILBOX,
    SECOND_HALF,
    TRANSPORT_FLAGS,
    Kind,
    Message,
    decode_header,
)
from psflow.ps_runtime.transport.mailbox import Tray

__all__ = ["Inbox"]

_FIRST_BYTES = 64 * 1024
_GROWTH = 4


class Inbox:
    """Puts together the messages that arrive at one socket, over as many reads as it takes.

    Notes
    -----
    Memory follows the bytes that came, not the length that was announced: it grows at most four times ahead of them.
    It is used again for the next message.
    """

    def __init__(self, sock: socket.socket, limit: Callable[[Kind], int]) -> None:
        self.tray: Tray | None = None
        """Where bodies may lie instead of coming by the socket."""
        self.transport_flags = 0
        """Those of the message that came last."""
        self.recv_into: Callable[[memoryview, int, int], int] = sock.recv_into
        """How bytes are received; takes what ``socket.recv_into`` takes."""
        self._limit = limit
        self._header = memoryview(bytearray(HEADER.size))
        self._num_header = 0
        self._message: Message | None = None
        self._length = 0
        self._received = 0
        self._buffer = memoryview(b"")
        self._target = self._buffer

    def read(self, into: memoryview | None = None) -> Message | None:
        """Return the next message, or None if the socket has no more for now: call again then.

        Raises
        ------
        BrokenPeerError
            If the peer closed its side or is gone.
        ProtocolError
            On a header that is none, or a body beyond the limit.
        """
        message = self._message
        if message is None:
            message = self._read_header()
            if message is None:
                return None
            if self.transport_flags & (IN_MAILBOX | SECOND_HALF):
                self._num_header = 0
                return self._with_body_of_tray(message, into)
            self._message = message
        if self._length:
            if not self._read_body(into):
                return None
            message.body = self._target if len(self._target) == self._length else self._target[: self._length]
        self._message = None
        self._target = self._buffer
        self._num_header = 0
        self._received = 0
        return message

    def _read_header(self) -> Message | None:
        missing = self._header[self._num_header :] if self._num_header else self._header
        self._num_header += self._receive(missing)
        if self._num_header < HEADER.size:
            return None
        message, length = decode_header(self._header)
        limit = self._limit(message.kind)
        if length > limit:
            raise ProtocolError(
                "peer", f"announced {length} bytes as the body of {message.kind.name}, at most {limit} are allowed"
            )
        self._length = length
        self.transport_flags = message.flags & TRANSPORT_FLAGS
        message.flags ^= self.transport_flags
        return message

    def _with_body_of_tray(self, message: Message, into: memoryview | None) -> Message:
        if self.tray is None:
            raise ProtocolError("peer", "announced a body in a mailbox that it does not have")
        body = self.tray.get(self.transport_flags, self._length)
        if into is not None and len(into) == self._length:
            into[:] = body
            body = into
        message.body = body
        return message

    def _read_body(self, into: memoryview | None) -> bool:
        while self._received < self._length:
            target = self._aim(into)
            end = min(len(target), self._length)
            self._received += self._receive(target[self._received : end])
            if self._received < end:
                return False
        return True

    def _aim(self, into: memoryview | None) -> memoryview:
        """Return where the body goes; what is there of it so far moves along."""
        if into is not None and len(into) == self._length:
            target = into
        else:
            if len(self._buffer) < self._length and len(self._buffer) <= self._received:
                self._buffer = self._larger()
            target = self._buffer
        if target is not self._target:
            target[: self._received] = self._target[: self._received]
            self._target = target
        return target

    def _larger(self) -> memoryview:
        wanted = min(self._length, max(_FIRST_BYTES, _GROWTH * self._received))
        return np.empty(1 << (wanted - 1).bit_length(), np.uint8).data

    def _receive(self, view: memoryview) -> int:
        try:
            # a blocking socket comes back with all of it, or with what there was when its time ran out
            num_bytes = self.recv_into(view, 0, socket.MSG_WAITALL)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise BrokenPeerError("peer", error.strerror or str(error)) from error
        if not num_bytes:
            raise BrokenPeerError("peer", "it closed the connection")
        return num_bytes
