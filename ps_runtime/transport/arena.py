"""The bytes of a shard, read by others without asking while their owner changes them.

A sequence lock: the owner makes a counter odd before a change and even after it. Who copies the bytes and finds the
counter even, and the same before and after, has one version; else the copy is torn and made again (see `reading`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ps_runtime.transport.shared_memory import SharedMemory

__all__ = ["HEADER_BYTES", "Arena", "header_words"]

HEADER_BYTES = 4096
"""Before the bytes: the counter and the version, two int64. A page, so that the bytes begin at one."""


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
    Belongs to one thread. Readers rely on the order of stores, so once there is a version `bytes` are changed by
    numpy's ufuncs, not by copies of tens of megabytes, for which the C library has stores of another order.
    """

    def __init__(self, block: NDArray[np.uint8], memory: SharedMemory | None) -> None:
        self.memory = memory
        self.bytes: NDArray[np.uint8] = block[HEADER_BYTES:]
        self.before_change: Callable[[], None] | None = None
        """Called by `begin` first: who serves readers may let them end."""
        self._words = header_words(block)
        self._words[1] = -1  # no version yet

    @classmethod
    def private(cls, nbytes: int) -> Arena:
        """Return an arena that only this process sees: the same calls, nobody reads."""
        return cls(np.zeros(HEADER_BYTES + nbytes, np.uint8), None)

    @classmethod
    def shared(cls, nbytes: int) -> Arena:
        """Return an arena whose descriptor others may be sent; only this mapping can write.

        Raises
        ------
        OSError
            If the system has no shared memory to give.
        """
        memory = SharedMemory.create(HEADER_BYTES + nbytes, writable_by_others=False)
        return cls(memory.bytes, memory)

    def begin(self) -> None:
        """Announce a change of `bytes`: readers wait, and what they have copied so far is torn.

        Notes
        -----
        Where readers of a large arena are served, it waits for those at it, for a bounded time.
        """
        if self.before_change is not None:
            self.before_change()
        self._words[0] += 1

    def end(self, version: int) -> None:
        """Announce that `bytes` are whole again, and which version they are."""
        self._words[1] = version
        self._words[0] += 1

    def close(self) -> None:
        """Give up the memory; it is freed when the last view and the last reader are gone. Idempotent."""
        if self.memory is not None:
            self.memory.close()
        self.bytes = np.empty(0, np.uint8)
        self._words = header_words(np.zeros(16, np.uint8))


def header_words(block: NDArray[np.uint8]) -> memoryview:
    """Return the counter and the version at the beginning of `block`, as int64."""
    return block[:16].data.cast("q")
