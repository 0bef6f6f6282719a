"""The owner's side of an arena; `test_reading` has both."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.transport.arena import Arena


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
