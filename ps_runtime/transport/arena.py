"""The bytes of a shard, read by others without asking while their owner changes them.

A sequence lock: the owner makes a counter odd before a change and even after it. Who copies the bytes and finds the
counter even, and the same before and after, has one version; else the copy is torn and made again. The owner never
waits for a lock, and readers write nothing.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from ps_runtime.transport.shared_memory import SharedMemory

__all__ = ["Arena", "ArenaReader"]

_HEADER_BYTES = 4096
"""Before the bytes: the counter and the version, two int64. A page, so that the bytes begin at one."""
_ATTEMPTS = 64
_NO_VERSION = -1


class Arena:
    """The owner's side of an arena; `private` and `shared` make one.

    Parameters
    ----------
    block : ndarray of uint8
        Header and bytes.
    memory : SharedMemory or None
        What others can map, if they can.
    """

    def __init__(self, block: NDArray[np.uint8], memory: SharedMemory | None) -> None:
        self.memory = memory
        self.bytes: NDArray[np.uint8] = block[_HEADER_BYTES:]
        self._words = block[:16].data.cast("q")
        self._words[1] = _NO_VERSION

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
        """Announce a change of `bytes`: readers wait, and what they have copied so far is torn."""
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
        self._words = memoryview(bytearray(16)).cast("q")


class ArenaReader:
    """What another process sees of a shared arena.

    Parameters
    ----------
    memory : SharedMemory
        Of ``Arena.memory``, attached; owned from here on.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self.bytes: NDArray[np.uint8] = memory.bytes[_HEADER_BYTES:]
        """As they are now, which may be in the midst of a change; read-only."""
        self._words = memory.bytes[:16].data.cast("q")

    def read(self, into: NDArray[np.uint8]) -> int | None:
        """Copy one version of the bytes into `into`, of the same size, and return its number.

        Returns
        -------
        int or None
            None if there is no version yet, or none came out whole in several attempts; `into` is undefined then,
            and the ps can be asked.
        """
        words, source = self._words, self.bytes
        for _ in range(_ATTEMPTS):
            before = words[0]
            if not before & 1:
                version = words[1]
                np.copyto(into, source)
                if words[0] == before:
                    return None if version == _NO_VERSION else version
            os.sched_yield()
        return None

    def close(self) -> None:
        """Give up the memory; views of `bytes` keep the mapping. Idempotent."""
        self._memory.close()
        self.bytes = np.empty(0, np.uint8)
        self._words = memoryview(bytearray(16)).cast("q")
