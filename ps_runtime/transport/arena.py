"""The bytes of a shard, read by others without asking while their owner changes them.

A sequence lock: the owner makes a counter odd before a change and even after it. Who copies the bytes and finds the
counter even, and the same before and after, has one version; else the copy is torn and made again.

A copy that takes longer than the pauses between two changes would be torn for ever. So a reader of a large arena leaves
a *mark* while it reads, and the owner waits for it before it begins, but only so long, and once for each mark: the lock
decides what is whole, marks only make it likely.
"""

from __future__ import annotations

import os
import threading
import time

import numpy as np
from numpy.typing import NDArray

from ps_runtime.transport.shared_memory import SharedMemory

__all__ = ["Arena", "ArenaReader"]

_HEADER_BYTES = 4096
"""Before the bytes: the counter and the version, two int64. A page, so that the bytes begin at one."""
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


class Arena:
    """The owner's side of an arena; `private` and `shared` make one.

    Parameters
    ----------
    block : ndarray of uint8
        Header and bytes.
    memory : SharedMemory or None
        What others can map, if they can.

    Notes
    -----
    Belongs to one thread.
    """

    def __init__(self, block: NDArray[np.uint8], memory: SharedMemory | None) -> None:
        self.memory = memory
        self.bytes: NDArray[np.uint8] = block[_HEADER_BYTES:]
        self._words = _words(block)
        self._words[1] = -1  # none yet
        self._fence = threading.Lock()
        self._marks: list[memoryview] = []
        self._overdue: dict[int, int] = {}
        """Marks that were waited for in vain, by the place of their word."""
        self._patience_secs = _MOMENT_SECS + self.bytes.size / _SLOW_BYTES_PER_SEC

    @classmethod
    def private(cls, nbytes: int) -> Arena:
        """Return an arena that only this process sees: the same calls, nobody reads."""
        return cls(np.zeros(_HEADER_BYTES + nbytes, np.uint8), None)

    @classmethod
    def shared(cls, nbytes: int) -> Arena:
        """Return an arena whose descriptor others may be sent; only this mapping can write.

        Raises
        ------
        OSError
            If the system has no shared memory to give.
        """
        memory = SharedMemory.create(_HEADER_BYTES + nbytes, writable_by_others=False)
        return cls(memory.bytes, memory)

    def begin(self) -> None:
        """Announce a change of `bytes`: readers wait, and what they have copied so far is torn.

        Notes
        -----
        Waits for those who are reading a large arena right now, for a bounded time.
        """
        if self._marks:
            self._let_readers_end()
        self._words[0] += 1
        # a whole copy of `bytes` may use stores that pass earlier ones; the atomic operation holds them back
        self._fence.acquire()
        self._fence.release()

    def end(self, version: int) -> None:
        """Announce that `bytes` are whole again, and which version they are."""
        self._words[1] = version
        self._words[0] += 1

    def watch(self, mark: memoryview) -> None:
        """Wait from now on for the reader whose mark this is; the arena being small, for nobody.

        Parameters
        ----------
        mark : memoryview of int64, one element
            Odd while it reads, another number each time. The peer can write what it likes.
        """
        if self.bytes.size >= _MARKED_BYTES:
            self._marks.append(mark)

    def forget(self, mark: memoryview) -> None:
        """Wait no more for the reader whose mark this is."""
        self._marks = [other for other in self._marks if other is not mark]
        self._overdue.pop(id(mark), None)

    def close(self) -> None:
        """Give up the memory; it is freed when the last view and the last reader are gone. Idempotent."""
        if self.memory is not None:
            self.memory.close()
        self.bytes = np.empty(0, np.uint8)
        self._words = _words(np.zeros(16, np.uint8))
        self._marks.clear()

    def _let_readers_end(self) -> None:
        reading = [(mark, now) for mark in self._marks if (now := mark[0]) & 1 and self._overdue.get(id(mark)) != now]
        if not reading:
            return
        deadline = time.monotonic() + self._patience_secs
        while reading := [(mark, then) for mark, then in reading if mark[0] == then]:
            if time.monotonic() >= deadline:
                self._overdue |= {id(mark): then for mark, then in reading}
                return
            time.sleep(_NAP_SECS)


class ArenaReader:
    """What another process sees of a shared arena.

    Parameters
    ----------
    memory : SharedMemory
        Of ``Arena.memory``, attached; owned from here on.
    mark : memoryview of int64, one element
        What the owner was given to `watch`.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(self, memory: SharedMemory, mark: memoryview) -> None:
        self._memory = memory
        self.bytes: NDArray[np.uint8] = memory.bytes[_HEADER_BYTES:]
        """As they are now, which may be in the midst of a change; read-only."""
        self._words = _words(memory.bytes)
        self._mark = mark
        self._patience_secs = 10 * (_MOMENT_SECS + self.bytes.size / _SLOW_BYTES_PER_SEC)

    def read(self, into: NDArray[np.uint8]) -> int | None:
        """Copy one version of the bytes into `into`, of the same size, and return its number.

        Returns
        -------
        int or None
            None if there is no version yet, or none came out whole in the time and the attempts that are allowed;
            `into` is undefined then, and the ps can be asked.
        """
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
        self._words = _words(np.full(16, 0xFE, np.uint8))  # even, and no version
        self._mark = _words(np.zeros(16, np.uint8))

    def _read(self, into: NDArray[np.uint8]) -> int | None:
        words = self._words
        for _ in range(_COPIES):
            before = words[0]
            if before & 1:
                before = self._await_end()
                if before & 1:
                    return None
            version = words[1]
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
                return now
        deadline = time.monotonic() + self._patience_secs
        while (now := words[0]) & 1 and time.monotonic() < deadline:
            time.sleep(_NAP_SECS)
        return now


def _words(block: NDArray[np.uint8]) -> memoryview:
    return block[:16].data.cast("q")
