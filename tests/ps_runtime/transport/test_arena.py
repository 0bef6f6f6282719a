"""The owner's side of an arena; `test_reading` has both."""

from __future__ import annotations

import pytest

from ps_runtime.transport.arena import Arena


@pytest.mark.parametrize("make", [Arena.private, Arena.shared])
@pytest.mark.parametrize("size", [0, 1, 5000])
def test_private_and_shared_have_the_same_calls(make, size):
    arena = make(size)
    calls = []
    arena.before_change = lambda: calls.append(1)
    arena.begin()
    arena.bytes[:] = 5
    arena.end(5)
    assert (arena.bytes == 5).all()
    assert (arena.bytes.size, calls) == (size, [1])
    assert (arena.memory is None) == (make == Arena.private)
    arena.close()
    arena.close()
