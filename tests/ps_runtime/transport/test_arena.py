"""The owner's side of an arena; `test_reading` has both."""

from __future__ import annotations

import numpy as np
import pytest

from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.in_process import InProcessServer


@pytest.mark.parametrize("make", [Arena.private, Arena.shared])
@pytest.mark.parametrize("size", [0, 1, 5000])
def test_private_and_shared_have_the_same_calls(make, size):
    arena = make(size)
    arena.begin(5)
    arena.advance(0, size)
    arena.bytes[:] = 5
    arena.end()
    assert (arena.bytes == 5).all()
    assert arena.bytes.size == size
    assert (arena.memory is None) == (make == Arena.private)
    arena.close()
    arena.close()


def test_a_change_tells_its_readers_where_it_goes():
    class Readers:
        def __init__(self) -> None:
            self.calls: list[tuple[str, int]] = []

        def begin(self, counter: int) -> None:
            self.calls.append(("begin", counter))

        def await_past(self, stop: int) -> None:
            self.calls.append(("past", stop))

    arena = Arena.private(10)
    arena.readers = readers = Readers()
    for version in (7, 8):
        arena.begin(version)
        arena.advance(0, 10)
        arena.end()
    assert readers.calls == [("begin", 1), ("past", 10), ("begin", 3), ("past", 10)]


def test_a_role_in_the_process_of_its_ps_reads_the_last_version_and_cannot_write():
    arena = Arena.private(4)
    with InProcessServer(object(), arena) as server:
        reader = server.connect().arena
        copy = np.empty(4, np.uint8)
        assert reader.read(copy) is None  # it has no version yet
        arena.begin(7)
        arena.bytes[:] = 3
        arena.end()
        assert (reader.read(copy), reader.version, copy.tolist()) == (7, 7, [3] * 4)
        with pytest.raises(ValueError, match="read-only"):
            reader.bytes[0] = 1
