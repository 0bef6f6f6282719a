"""Lets the garbage collector rest during imports: collections take up to a third of their time, and find little."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_num_blocks = 0
_was_at_work = False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Disable the garbage collector during the block, and while any thread is in such a block. Thread-safe."""
    global _num_blocks, _was_at_work
    with _lock:
        if not _num_blocks:
            _was_at_work = gc.isenabled()
            gc.disable()
        _num_blocks += 1
    try:
        yield
    finally:
        with _lock:
            _num_blocks -= 1
            if not _num_blocks and _was_at_work:
                gc.enable()
