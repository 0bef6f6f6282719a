"""Where the bodies of one connection lie when both ends share memory; the socket then carries headers only."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.protocol.message import IN_MAILBOX, SECOND_HALF
from psflow.ps_runtime.transport.arena import header_words
from psflow.ps_runtime.transport.shared_memory import SharedMemory

__all__ = ["INLINE_BYTES", "Mailbox", "Tray"]

INLINE_BYTES = 4096
"""Bodies up to that go through the socket: there they cost no more."""
_PAGE_BYTES = 4096
_MAX_VIEWS = 64


class Tray:
    """The bodies of one direction. Two halves: while the peer uses one, the next body is made in the other."""

    __slots__ = ("_addresses", "_halves", "_views", "nbytes", "turn")

    def __init__(self, first: NDArray[np.uint8], second: NDArray[np.uint8]) -> None:
        self.nbytes = first.size
        self.turn = 0
        """The half that the next body goes to."""
        self._halves = (first.data, second.data)
        self._addresses = {_address(half): turn for turn, half in enumerate(self._halves)}
        self._views: dict[tuple[int, int], memoryview] = {}

    def room(self, nbytes: int) -> memoryview | None:
        """Return where a body of `nbytes` can be made, as a rule the same view each time; None if it does not fit."""
        return None if nbytes > self.nbytes else self._view(self.turn, nbytes)

    def put(self, body: memoryview) -> int:
        """Put a body into the tray, unless it was made there; return the flags that say where, 0 if it does not fit."""
        nbytes = len(body)
        if nbytes > self.nbytes:
            return 0
        turn = None if body.readonly else self._addresses.get(_address(body))
        if turn is None:
            turn = self.turn
            self._halves[turn][:nbytes] = body
        self.turn = 1 - turn
        return IN_MAILBOX | SECOND_HALF if turn else IN_MAILBOX

    def get(self, flags: int, nbytes: int) -> memoryview:
        """Return the body that the peer put where `flags` say, as a rule the same view each time.

        The peer can still change it.

        Raises
        ------
        ProtocolError
            If the peer claims to have put in more than there is room for.
        """
        if nbytes > self.nbytes:
            raise ProtocolError("peer", f"announced {nbytes} bytes in a mailbox of {self.nbytes}")
        return self._view(1 if flags & SECOND_HALF else 0, nbytes)

    def _view(self, turn: int, nbytes: int) -> memoryview:
        view = self._views.get((turn, nbytes))
        if view is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()  # bodies with rows have a size of their own each
            view = self._views[turn, nbytes] = self._halves[turn][:nbytes]
        return view


class Mailbox:
    """The shared memory of one connection: a page for the mark, a tray for requests, a tray for replies."""

    def __init__(self, memory: SharedMemory, request_bytes: int, reply_bytes: int) -> None:
        self.memory = memory
        """What the peer has to map."""
        self.mark = header_words(memory.bytes)
        """Where the peer tells that it reads the arena, and the ps that it stays behind; see `marks`."""
        self.requests = _tray(memory.bytes, _PAGE_BYTES, request_bytes)
        self.replies = _tray(memory.bytes, _PAGE_BYTES + 2 * _paged(request_bytes), reply_bytes)

    @classmethod
    def create(cls, request_bytes: int, reply_bytes: int) -> Mailbox:
        """Return a new one.

        Raises
        ------
        OSError
            If the system has no shared memory to give.
        """
        return cls(SharedMemory.create(_size(request_bytes, reply_bytes)), request_bytes, reply_bytes)

    @classmethod
    def attach(cls, fd: int, request_bytes: int, reply_bytes: int) -> Mailbox:
        """Return the one that the ps has made; `fd` is owned from here on.

        Raises
        ------
        ValueError, OSError
            If it is not what the sizes say, or cannot be mapped.
        """
        memory = SharedMemory.attach(fd, _size(request_bytes, reply_bytes), writable=True)
        return cls(memory, request_bytes, reply_bytes)

    def close(self) -> None:
        """Give up the memory; views of bodies keep the mapping. Idempotent."""
        self.memory.close()
        nothing = np.empty(0, np.uint8)
        self.requests, self.replies = Tray(nothing, nothing), Tray(nothing, nothing)
        self.mark = memoryview(bytearray(_PAGE_BYTES)).cast("q")


def _tray(block: NDArray[np.uint8], start: int, nbytes: int) -> Tray:
    second = start + _paged(nbytes)
    return Tray(block[start : start + nbytes], block[second : second + nbytes])


def _size(request_bytes: int, reply_bytes: int) -> int:
    return _PAGE_BYTES + 2 * (_paged(request_bytes) + _paged(reply_bytes))


def _paged(nbytes: int) -> int:
    return -(-nbytes // _PAGE_BYTES) * _PAGE_BYTES


def _address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if len(view) else 0
