"""Both ends of a shared arena in one process, and a clock that they wait by."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from psflow.ps_runtime.transport import reading
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.reading import ArenaReader, Marks
from psflow.ps_runtime.transport.shared_memory import SharedMemory

SMALL = 1000
CHUNK = reading._CHUNK_BYTES
LARGE = 3 * CHUNK + 5


class Clock:
    """Time passes when someone sleeps; then others get their turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, secs: float) -> None:
        self.now += secs
        self.on_sleep()


class Ends:
    """An arena, its reader, and the mark between them."""

    def __init__(self, size: int) -> None:
        self.arena = Arena.shared(size)
        memory = self.arena.memory
        assert memory is not None
        self.mark = memoryview(bytearray(32)).cast("q")
        self.reader = ArenaReader(SharedMemory.attach(os.dup(memory.fd), memory.bytes.size, writable=False), self.mark)
        self.into = np.zeros(size, np.uint8)
        self.marks = Marks(size)
        self.marks.add(1, self.mark)
        if size == LARGE:
            self.arena.readers = self.marks

    def publish(self, version: int) -> None:
        """Change the arena as a shard does, a part after the other."""
        size = self.arena.bytes.size
        self.arena.begin(version)
        for start in range(0, size, CHUNK // 2):
            stop = min(size, start + CHUNK // 2)
            self.arena.advance(start, stop)
            part = self.arena.bytes[start:stop]
            np.bitwise_or(part, 0xFF, out=part)  # no copy: readers rely on the order of stores
            np.bitwise_and(part, version % 256, out=part)
        self.arena.end()

    def publish_unseen(self, version: int) -> None:
        """Change the arena as an owner that has not seen the reader's mark yet."""
        self.marks.remove(1)
        self.publish(version)
        self.marks.add(1, self.mark)

    def change_until(self, stop: int, version: int) -> None:
        """Make a change that is over before it has come far."""
        self.arena.begin(version)
        self.arena.advance(0, stop)
        self.arena.bytes[:stop] = version
        self.arena.end()

    def read(self) -> int | None:
        version = self.reader.read(self.into)
        assert version is None or (self.into == version % 256).all()
        return version

    def close(self) -> None:
        self.reader.close()
        self.arena.close()


@contextmanager
def opened(size: int) -> Iterator[Ends]:
    ends = Ends(size)
    yield ends
    ends.close()
