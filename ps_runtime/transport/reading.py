"""Reading an arena that another process changes, and what its owner does for readers.

A copy that takes longer than the pauses between two changes would be torn for ever. So a reader of a large arena leaves
a *mark* while it reads, and the owner waits for it before it begins, but only so long, and once for each mark: the lock
decides what is whole, marks only make it likely.
"""

from __future__ import annotations

import os
import time

import numpy as np
from numpy.typing import NDArray

from ps_runtime.transport.arena import HEADER_BYTES, header_words
from ps_runtime.transport.shared_memory import SharedMemory

__all__ = ["ArenaReader", "Marks"]

_MARKED_BYTES = 1024 * 1024
"""Below that a torn copy is made again sooner than the owner is told to wait."""
_CHUNK_BYTES = 1024 * 1024
"""How much is copied before a reader looks whether it is in vain."""
_COPIES = 20
_YIELDS = 20
_NAP_SECS = 50e-6
_SLOW_BYTES_PER_SEC = 1e9
"""No reader that is alive copies slower, but for a moment."""
_MOMENT_SECS = 2e-3


class ArenaReader:
    """A shared arena, as another process sees it: a `ReadableArena`.

    Parameters
    ----------
    memory : SharedMemory
        Of ``Arena.memory``, attached; owned from here on.
    mark : memoryview of int64, one element
        Where the owner looks whether this reader is at it: odd while it is, another number each time.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(self, memory: SharedMemory, mark: memoryview) -> None:
        self._memory = memory
        self.bytes: NDArray[np.uint8] = memory.bytes[HEADER_BYTES:]
        """As they are now, which may be in the midst of a change; read-only."""
        self._words = header_words(memory.bytes)
        self._mark = mark
        self._patience_secs = 10 * _copy_secs(self.bytes.size)

    @property
    def version(self) -> int:
        """Number of the last whole version; negative before there is one, and after `close`."""
        version: int = self._words[1]
        return version

    def read(self, into: NDArray[np.uint8]) -> int | None:  # noqa: D102
        if self.bytes.size < _MARKED_BYTES:
            return self._read(into)
        self._mark[0] |= 1
        try:
            return self._read(into)
        finally:
            self._mark[0] += 1

    def close(self) -> None:
        """Give up the memory; views of `bytes` keep the mapping. Idempotent."""
        self._memory.close()
        self.bytes = np.empty(0, np.uint8)
        self._words = header_words(np.full(16, 0xFE, np.uint8))  # even, and no version
        self._mark = header_words(np.zeros(16, np.uint8))

    def _read(self, into: NDArray[np.uint8]) -> int | None:
        words = self._words
        for _ in range(_COPIES):
            before = words[0]
            if before & 1:
                before = self._await_end()
                if before & 1:
                    return None
            version: int = words[1]
            if version < 0:
                return None
            if self._copy(into, before) and words[0] == before:
                return version
        return None

    def _copy(self, into: NDArray[np.uint8], sequence: int) -> bool:
        """Copy the bytes; give up between two chunks once another change has begun."""
        source = self.bytes
        if source.size <= _CHUNK_BYTES:
            np.copyto(into, source)
            return True
        for start in range(0, source.size, _CHUNK_BYTES):
            chunk = slice(start, start + _CHUNK_BYTES)
            np.copyto(into[chunk], source[chunk])
            if self._words[0] != sequence:
                return False
        return True

    def _await_end(self) -> int:
        """Wait until the change under way is over; return the counter, still odd if it never was."""
        words = self._words
        for _ in range(_YIELDS):
            os.sched_yield()  # the owner may be waiting for this very core
            if not (now := words[0]) & 1:
                return int(now)
        deadline = time.monotonic() + self._patience_secs
        while (now := words[0]) & 1 and time.monotonic() < deadline:
            time.sleep(_NAP_SECS)
        return int(now)


class Marks:
    """The marks of all readers of an arena of `nbytes`, as the owner looks at them."""

    def __init__(self, nbytes: int) -> None:
        self._is_needed = nbytes >= _MARKED_BYTES
        self._patience_secs = _copy_secs(nbytes)
        self._marks: dict[int, memoryview] = {}
        self._overdue: dict[int, int] = {}
        """What was waited for in vain."""

    def add(self, reader: int, mark: memoryview) -> None:
        """Wait from now on for `reader`, which leaves its mark there; the arena being small, for nobody.

        The reader's process can write there what it likes: nothing else is taken from it.
        """
        if self._is_needed:
            self._marks[reader] = mark

    def remove(self, reader: int) -> None:
        """Wait for `reader` no more."""
        self._marks.pop(reader, None)
        self._overdue.pop(reader, None)

    def wait(self) -> None:
        """Wait until those who are reading now have ended, but not longer than a copy takes."""
        reading = {
            reader: then
            for reader, mark in self._marks.items()
            if (then := mark[0]) & 1 and self._overdue.get(reader) != then
        }
        if not reading:
            return
        deadline = time.monotonic() + self._patience_secs
        while reading := {reader: then for reader, then in reading.items() if self._marks[reader][0] == then}:
            if time.monotonic() >= deadline:
                self._overdue |= reading
                return
            time.sleep(_NAP_SECS)


def _copy_secs(nbytes: int) -> float:
    return _MOMENT_SECS + nbytes / _SLOW_BYTES_PER_SEC
