"""Reading an arena that another process changes.

A small arena is copied, and copied again if it was changed meanwhile. A large one would be torn nearly each time: its
reader leaves a mark, with how far it is: a change that begins later stays behind it. Where a change is under way
already, the reader follows it, and has what that makes. The counter, or the owner's promise, decides what is whole.
"""

from __future__ import annotations

import os
import time

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.transport.arena import COUNTER, HEADER_BYTES, NEXT_VERSION, REACHED, VERSION, header_words
from psflow.ps_runtime.transport.marks import DONE, LARGE_BYTES, MARK, PROMISED, SINCE, copy_secs, nap_secs
from psflow.ps_runtime.transport.shared_memory import SharedMemory

__all__ = ["ArenaReader"]

_CHUNK_BYTES = 4 * 1024 * 1024
"""How much is copied before a reader says how far it is, and looks whether it is in vain. From here on the C library
copies past the cache, as the processes of a cluster of ours set it."""
_COPIES = 20
_YIELDS = 20


class ArenaReader:
    """A shared arena, as another process sees it: a `ReadableArena`.

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
        self._timeout_secs = 10 * copy_secs(self.bytes.size)
        self._nap_secs = nap_secs(self.bytes.size)

    @property
    def version(self) -> int:
        """Number of the last whole version; negative before there is one, and after `close`."""
        version: int = self._words[VERSION]
        return version

    def read(self, into: NDArray[np.uint8]) -> int | None:  # noqa: D102
        return self._read_at_once(into) if self.bytes.size < LARGE_BYTES else self._read_in_step(into)

    def close(self) -> None:
        """Give up the memory; views of `bytes` keep the mapping. Idempotent."""
        self._memory.close()
        self.bytes = np.empty(0, np.uint8)
        self._words = header_words(np.full(HEADER_BYTES, 0xFE, np.uint8))  # even, and no version
        self._mark = header_words(np.zeros(HEADER_BYTES, np.uint8))

    def _read_at_once(self, into: NDArray[np.uint8]) -> int | None:
        words = self._words
        for _ in range(_COPIES):
            before = words[COUNTER]
            if before & 1:
                before = self._await_end()
                if before & 1:
                    return None
            version: int = words[VERSION]
            if version < 0:
                return None
            np.copyto(into, self.bytes)
            if words[COUNTER] == before:
                return version
        return None

    def _await_end(self) -> int:
        """Wait until the change under way is over; return the counter, still odd if it never was."""
        words = self._words
        for _ in range(_YIELDS):
            os.sched_yield()  # the owner may be waiting for this very core
            if not (now := words[COUNTER]) & 1:
                return int(now)
        deadline = Deadline(self._timeout_secs)
        while (now := words[COUNTER]) & 1 and not deadline.has_passed:
            time.sleep(self._nap_secs)
        return int(now)

    def _read_in_step(self, into: NDArray[np.uint8]) -> int | None:
        words, mark = self._words, self._mark
        deadline = Deadline(self._timeout_secs)
        for _ in range(_COPIES):
            before: int = words[COUNTER]
            version: int = words[NEXT_VERSION if before & 1 else VERSION]
            if version < 0:
                return None
            mark[DONE] = 0
            mark[MARK] = (mark[MARK] + 1) | 1
            try:
                # a change that began meanwhile may or may not have seen the mark, so nobody would wait for the other
                if words[COUNTER] == before and self._copy(into, before, deadline):
                    return version
            finally:
                mark[MARK] += 1
        return None

    def _copy(self, into: NDArray[np.uint8], before: int, deadline: Deadline) -> bool:
        """Copy one version, chunk after chunk; return False once it cannot be one any more."""
        source, mark = self.bytes, self._mark
        for start in range(0, source.size, _CHUNK_BYTES):
            stop = min(start + _CHUNK_BYTES, source.size)
            if before & 1 and not self._await_reached(before, stop, deadline):
                return False
            np.copyto(into[start:stop], source[start:stop])
            mark[DONE] = stop
            if not self._is_whole(before):
                return False
        return True

    def _await_reached(self, change: int, stop: int, deadline: Deadline) -> bool:
        """Wait until a change has done the bytes before `stop`, or is over.

        Return False after `deadline`, or if the change waits for us: it saw the mark as we saw it begin.
        """
        words, mark = self._words, self._mark
        while words[COUNTER] == change and words[REACHED] < stop:
            if mark[PROMISED] == mark[MARK] or deadline.has_passed:
                return False
            time.sleep(self._nap_secs)
        return True

    def _is_whole(self, before: int) -> bool:
        """Return whether no change came past this reader that it has not followed, the counter having been `before`."""
        follows = before & 1
        if self._words[COUNTER] - before <= follows:
            return True
        mark = self._mark  # read in this order, the other one of its owner's: never parts of two promises
        return bool(mark[PROMISED] == mark[MARK] and mark[SINCE] == before + follows + 1)
