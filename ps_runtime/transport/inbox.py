"""Assembles the bytes of a socket into whole messages."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

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
from psflow.ps_runtime.transport.arena import header_words
from psflow.ps_runtime.transport.shared_memory import SharedMemory

INLINE_BYTES = 4096
"""Bodies up to this size go through the socket: there they cost no more."""
_PAGE_BYTES = 4096
_DEPOSIT_START = 64
"""In the page of the mark, two int64 and a header: whether the ps takes deposits, how many there were, the last one."""
_TAKES, _NUMBER = range(2)
_MAX_VIEWS = 64


class Tray:
    """The bodies of one direction. Two halves: while the peer uses one, the next body is made in the other."""

    __slots__ = ("_addresses", "_halves", "_views", "nbytes", "turn")

    def __init__(self, first: NDArray[np.uint8], second: NDArray[np.uint8]) -> None:
        self.nbytes = first.size
        self.turn = 0
        """The half for the next body."""
        self._halves = (first.data, second.data)
        self._addresses = {_address(half): turn for turn, half in enumerate(self._halves)}
        self._views: dict[tuple[int, int], memoryview] = {}

    def room(self, nbytes: int) -> memoryview | None:
        """Return a place for a body of `nbytes`, as a rule the same view each time; None if it does not fit."""
        return None if nbytes > self.nbytes else self._view(self.turn, nbytes)

    def put(self, body: memoryview) -> int:
        """Put a body into the tray, unless it was made there; return the flags of its place, 0 if it does not fit."""
        nbytes = len(body)
        if nbytes > self.nbytes:
            return 0
        if body is self._views.get((self.turn, nbytes)):
            turn: int | None = self.turn
        else:
            turn = None if body.readonly else self._addresses.get(_address(body))
        if turn is None:
            turn = self.turn
            self._halves[turn][:nbytes] = body
        self.turn = 1 - turn
        return IN_MAILBOX | SECOND_HALF if turn else IN_MAILBOX

    def get(self, flags: int, nbytes: int) -> memoryview:
        """Return the body that the peer put at the place of `flags`, as a rule the same view each time.

        The peer can still change it.

        Raises ProtocolError if the peer claims a body larger than the tray.
        """
        if nbytes > self.nbytes:
            raise ProtocolError("peer", f"announced {nbytes} bytes in a mailbox of {self.nbytes}")
        return self._view(1 if flags & SECOND_HALF else 0, nbytes)

    def _view(self, turn: int, nbytes: int) -> memoryview:
        view = self._views.get((turn, nbytes))
        if view is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()  # bodies with rows each have their own size
            view = self._views[turn, nbytes] = self._halves[turn][:nbytes]
        return view


class Mailbox:
    """The shared memory of one connection: a page for mark and deposit, a tray for requests, a tray for replies."""

    def __init__(self, memory: SharedMemory, request_bytes: int, reply_bytes: int) -> None:
        self.memory = memory
        """Number of bytes that the peer maps."""
        self.mark = header_words(memory.bytes)
        """Page where the peer marks that it reads the arena, and the ps that it stays behind; see `reading`."""
        self._map_deposit(memory.bytes)
        self._num_taken = 0
        self.requests = _tray(memory.bytes, _PAGE_BYTES, request_bytes)
        self.replies = _tray(memory.bytes, _PAGE_BYTES + 2 * _paged(request_bytes), reply_bytes)

    @classmethod
    def create(cls, request_bytes: int, reply_bytes: int, *, takes_deposits: bool = False) -> Mailbox:
        """Return a new mailbox.

        Raises OSError if the system has no shared memory to give.
        """
        mailbox = cls(SharedMemory.create(_size(request_bytes, reply_bytes)), request_bytes, reply_bytes)
        mailbox._deposits[_TAKES] = int(takes_deposits)
        return mailbox

    @classmethod
    def attach(cls, fd: int, request_bytes: int, reply_bytes: int) -> Mailbox:
        """Return the mailbox that the ps has made; `fd` is owned from here on.

        Raises ValueError or OSError if it is not what the sizes say, or cannot be mapped.
        """
        memory = SharedMemory.attach(fd, _size(request_bytes, reply_bytes), writable=True)
        return cls(memory, request_bytes, reply_bytes)

    @property
    def takes_deposits(self) -> bool:
        """Whether the ps looks for deposited requests here."""
        return bool(self._deposits[_TAKES])

    def deposit(self, header: bytes) -> None:
        """Show the ps a request whose body is in the tray; the number changes last, so that no torn one is seen."""
        self._deposit[:] = header
        self._deposits[_NUMBER] += 1

    def take_deposit(self) -> memoryview | None:
        """Return the header of the request that the peer has deposited since the last call; None if there is none."""
        number = self._deposits[_NUMBER]
        if number == self._num_taken:
            return None
        self._num_taken = number
        return memoryview(bytes(self._deposit))

    def close(self) -> None:
        """Release the memory; views of bodies keep the mapping. Idempotent."""
        self.memory.close()
        nothing = np.empty(0, np.uint8)
        self.requests, self.replies = Tray(nothing, nothing), Tray(nothing, nothing)
        self.mark = memoryview(bytearray(_PAGE_BYTES)).cast("q")
        self._map_deposit(np.zeros(_PAGE_BYTES, np.uint8))
        self._num_taken = 0

    def _map_deposit(self, page: NDArray[np.uint8]) -> None:
        start = _DEPOSIT_START + 2 * 8
        self._deposits = page[_DEPOSIT_START:start].data.cast("q")
        self._deposit = page[start : start + HEADER.size].data


def _tray(block: NDArray[np.uint8], start: int, nbytes: int) -> Tray:
    second = start + _paged(nbytes)
    return Tray(block[start : start + nbytes], block[second : second + nbytes])


def _size(request_bytes: int, reply_bytes: int) -> int:
    return _PAGE_BYTES + 2 * (_paged(request_bytes) + _paged(reply_bytes))


def _paged(nbytes: int) -> int:
    return -(-nbytes // _PAGE_BYTES) * _PAGE_BYTES


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0


_FIRST_BYTES = 64 * 1024
_GROWTH = 4


class Inbox:
    """Assembles the messages that arrive at one socket, over any number of reads.

    Notes
    -----
    Memory follows the received bytes, not the announced length: it grows at most four times ahead of them. It is
    used again for the next message.
    """

    def __init__(self, sock: socket.socket, limit: Callable[[Kind], int]) -> None:
        self.tray: Tray | None = None
        """Memory that may hold bodies instead of the socket."""
        self.transport_flags = 0
        """Flags of the last message."""
        self.recv_into: Callable[[memoryview, int, int], int] = sock.recv_into
        """Receives bytes, as ``socket.recv_into`` does."""
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
            On an invalid header, or a body beyond the limit.
        """
        message = self._message
        if message is None:
            message = self._read_header()
            if message is None:
                return None
            if self.transport_flags & (IN_MAILBOX | SECOND_HALF):
                self._num_header = 0
                message.body = self._body_in_tray(self.transport_flags, self._length)
                if into is not None and len(into) == self._length:
                    into[:] = message.body
                    message.body = into
                return message
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

    def deposited(self, header: memoryview) -> Message:
        """Return the request that `header` announces in the tray, whatever is being read.

        Raises ProtocolError on an invalid header, or a body beyond the limit.
        """
        message, length, flags = self._parse(header)
        message.body, message.is_deposited = self._body_in_tray(flags, length), True
        return message

    def _read_header(self) -> Message | None:
        missing = self._header[self._num_header :] if self._num_header else self._header
        self._num_header += self._receive(missing)
        if self._num_header < HEADER.size:
            return None
        message, self._length, self.transport_flags = self._parse(self._header)
        return message

    def _parse(self, header: memoryview) -> tuple[Message, int, int]:
        """Return the announced message, the length of its body, and its transport flags."""
        message, length = decode_header(header)
        limit = self._limit(message.kind)
        if length > limit:
            raise ProtocolError(
                "peer", f"announced {length} bytes as the body of {message.kind.name}, at most {limit} are allowed"
            )
        transport_flags = message.flags & TRANSPORT_FLAGS
        message.flags ^= transport_flags
        return message, length, transport_flags

    def _body_in_tray(self, flags: int, length: int) -> memoryview:
        if self.tray is None:
            raise ProtocolError("peer", "announced a body in a mailbox that it does not have")
        return self.tray.get(flags, length)

    def _read_body(self, into: memoryview | None) -> bool:
        while self._received < self._length:
            target = self._aim(into)
            end = min(len(target), self._length)
            self._received += self._receive(target[self._received : end])
            if self._received < end:
                return False
        return True

    def _aim(self, into: memoryview | None) -> memoryview:
        """Return the place of the body; its received part moves along."""
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
            # a blocking socket returns all of it, or the part received within the timeout
            num_bytes = self.recv_into(view, 0, socket.MSG_WAITALL)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise BrokenPeerError("peer", error.strerror or str(error)) from error
        if not num_bytes:
            raise BrokenPeerError("peer", "it closed the connection")
        return num_bytes
