"""Reads an arena that another process changes, with marks that readers of a large one leave for its owner.

A change and a copy of many megabytes would tear each other for ever, or wait for each other. Both go through the bytes
in the same order: the change stays behind the readers that were there when it began, and promises so; a reader that
starts during the change follows it.

A small arena is copied, and copied again if it was changed meanwhile. A large one would be torn nearly each time: its
reader leaves a mark with its progress, and a change that begins later stays behind it. If a change is under way
already, the reader follows it, and gets its version. The counter, or the owner's promise, decides what is whole.
"""

from __future__ import annotations

import os
import time

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.transport.arena import COUNTER, HEADER_BYTES, NEXT_VERSION, REACHED, VERSION, header_words
from psflow.ps_runtime.transport.shared_memory import SharedMemory

MARK, DONE, PROMISED, SINCE = range(4)
"""Of the reader: odd while it reads, another number each time; the bytes it has read. Of the owner: the mark that it
stays behind, and the counter of the arena when that began.
"""
LARGE_BYTES = 1024 * 1024
"""A smaller copy is repeated sooner than the owner can be asked to wait."""
_SLOW_BYTES_PER_SEC = 1e9
"""No living reader copies slower, except for a moment."""
_MOMENT_SECS = 2e-3


class Marks:
    """The marks of all readers of an arena of `nbytes`: the `Readers` of its owner.

    Notes
    -----
    A reader's process can write anything there: it decides only how long to wait, and that is bounded by the time
    that a copy takes.
    """

    def __init__(self, nbytes: int) -> None:
        self._timeout_secs = copy_secs(nbytes)
        self._nap_secs = nap_secs(nbytes)
        self._marks: dict[int, memoryview] = {}
        self._ahead: dict[int, int] = {}
        """The readers that the change under way stays behind, and their marks."""
        self._overdue: dict[int, int] = {}
        """The wait that was in vain."""
        self._deadline: Deadline | None = None

    def add(self, reader: int, mark: memoryview) -> None:
        """Add `reader`, which leaves its mark there."""
        self._marks[reader] = mark

    def remove(self, reader: int) -> None:
        """Remove `reader`."""
        for known in (self._marks, self._ahead, self._overdue):
            known.pop(reader, None)

    def begin(self, counter: int) -> None:
        """Promise the present readers to stay behind them, during this change and later ones."""
        self._ahead.clear()
        self._deadline = None
        for reader, mark in self._marks.items():
            number = mark[MARK]
            if not number & 1 or self._overdue.get(reader) == number:
                continue
            if mark[PROMISED] != number:
                mark[SINCE] = counter
                mark[PROMISED] = number
            self._ahead[reader] = number

    def await_past(self, stop: int) -> None:
        """Wait until those have read the bytes before `stop`; break the promise to slow readers."""
        while self._ahead and (late := self._late(stop)):
            if self._deadline is None:
                self._deadline = Deadline(self._timeout_secs)
            if self._deadline.has_passed:
                for reader in late:
                    self._marks[reader][PROMISED] = 0
                    self._overdue[reader] = self._ahead.pop(reader)
                return
            time.sleep(self._nap_secs)

    def _late(self, stop: int) -> list[int]:
        """Return the readers that have not read the bytes before `stop`; drop those that have ended."""
        self._ahead = {reader: number for reader, number in self._ahead.items() if self._marks[reader][MARK] == number}
        return [reader for reader in self._ahead if self._marks[reader][DONE] < stop]


def copy_secs(nbytes: int) -> float:
    """Return how long a slow copy of `nbytes` takes."""
    return _MOMENT_SECS + nbytes / _SLOW_BYTES_PER_SEC


def nap_secs(nbytes: int) -> float:
    """Return how long to sleep before the next look at a copy of `nbytes`: about a tenth of its time."""
    return min(max(50e-6, nbytes * 1e-11), 500e-6)


_CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes that a reader copies before it states its progress, and checks whether it is in vain. From this size on the C
library copies past the cache, as the processes of our own cluster set it.
"""
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
        """The present bytes, which may be in the middle of a change; read-only."""
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
        """Release the memory; views of `bytes` keep the mapping. Idempotent."""
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
        """Wait until the change under way is over; return the counter, still odd after the timeout."""
        words = self._words
        for _ in range(_YIELDS):
            os.sched_yield()  # the owner may be waiting for this core
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
                # a change that began meanwhile may or may not have seen the mark, so neither may wait for the other
                if words[COUNTER] == before and self._copy(into, before, deadline):
                    return version
            finally:
                mark[MARK] += 1
        return None

    def _copy(self, into: NDArray[np.uint8], before: int, deadline: Deadline) -> bool:
        """Copy one version, chunk after chunk; return False once it cannot be one version."""
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
        """Return whether every change that passed this reader was followed by it, the counter having been `before`."""
        follows = before & 1
        if self._words[COUNTER] - before <= follows:
            return True
        mark = self._mark  # read in this order, the reverse of the owner's: never parts of two promises
        return bool(mark[PROMISED] == mark[MARK] and mark[SINCE] == before + follows + 1)
