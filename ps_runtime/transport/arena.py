"""Shares the bytes of a shard with readers that send no request, while their owner changes them.

A sequence lock: the owner makes a counter odd before a change and even after it. A reader whose copy finds the counter
even, and the same before and after, has one version. A change goes through the bytes from the first to the last and
states its progress, so that readers of a large arena and its owner need not wait for each other (see `reading`).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.transport.shared_memory import SharedMemory

HEADER_BYTES = 4096
"""Before the bytes: four int64. A page, so that the bytes begin at one."""
COUNTER, VERSION, REACHED, NEXT_VERSION = range(4)
"""Odd during a change; the last whole version; the progress of the change under way in bytes; the version it makes."""
_WORDS_BYTES = 4 * 8


class Readers(Protocol):
    """The concurrent readers of an arena, as seen by its owner."""

    def begin(self, counter: int) -> None:
        """Record that a change has begun, which is to stay behind the present readers."""

    def await_past(self, stop: int) -> None:
        """Wait, for a bounded time, until these have read the bytes before `stop`."""


class Arena:
    """The owner's side of an arena; `private` and `shared` make one.

    Notes
    -----
    Belongs to one thread. Readers rely on the order of stores, so once there is a version `bytes` are changed by
    numpy's ufuncs, not by copies of tens of megabytes, for which the C library has stores of another order.
    """

    def __init__(self, block: NDArray[np.uint8], memory: SharedMemory | None) -> None:
        self.memory = memory
        self.bytes: NDArray[np.uint8] = block[HEADER_BYTES:]
        self.readers: Readers | None = None
        """The readers that a change stays behind; None if there are none."""
        self._words = header_words(block)
        self._words[VERSION] = -1  # no version yet

    @property
    def version(self) -> int:
        """Number of the last whole version; negative before there is one."""
        version: int = self._words[VERSION]
        return version

    @classmethod
    def private(cls, nbytes: int) -> Arena:
        """Return an arena that only this process sees: the same calls, without readers."""
        return cls(np.zeros(HEADER_BYTES + nbytes, np.uint8), None)

    @classmethod
    def shared(cls, nbytes: int) -> Arena:
        """Return an arena whose descriptor can be sent to other processes; only this mapping can write.

        Raises OSError if the system has no shared memory to give.
        """
        memory = SharedMemory.create(HEADER_BYTES + nbytes, writable_by_others=False)
        return cls(memory.bytes, memory)

    def begin(self, version: int) -> None:
        """Begin a change of `bytes`, which makes `version`; what is changed first goes through `advance`."""
        words = self._words
        words[NEXT_VERSION], words[REACHED] = version, 0
        words[COUNTER] += 1
        if self.readers is not None:
            self.readers.begin(words[COUNTER])

    def advance(self, start: int, stop: int) -> None:
        """State that the bytes before `start` are changed, and those before `stop` about to be.

        Notes
        -----
        Waits, for a bounded time, for readers that began before this change and are not past `stop` yet.
        """
        if self.readers is not None:
            self._words[REACHED] = start
            self.readers.await_past(stop)

    def end(self) -> None:
        """End the change: `bytes` are whole again."""
        words = self._words
        words[VERSION] = words[NEXT_VERSION]
        words[COUNTER] += 1

    def close(self) -> None:
        """Release the memory; it is freed with its last view and its last reader. Idempotent."""
        if self.memory is not None:
            self.memory.close()
        self.bytes = np.empty(0, np.uint8)
        self._words = header_words(np.zeros(_WORDS_BYTES, np.uint8))


def header_words(block: NDArray[np.uint8]) -> memoryview:
    """Return the four int64 at the start of `block`."""
    return block[:_WORDS_BYTES].data.cast("q")
