"""Lets the garbage collector rest during imports: collections take up to two fifths of their time, and find little."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_num_blocks = 0
_was_at_work = False
_freezes = False


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
            if _num_blocks == 1:
                _wake_up()
            _num_blocks = max(_num_blocks - 1, 0)


def freeze_after_rests() -> None:
    """Leave out of later collections all that there is at the end of a rest: for the process of one command."""
    global _freezes
    _freezes = True


def _wake_up() -> None:
    if _freezes:
        gc.freeze()
    if _was_at_work:
        gc.enable()


def _begin_anew() -> None:
    """Forget the blocks of other threads, which a forked child lacks."""
    global _lock, _num_blocks
    _lock = threading.Lock()
    if _num_blocks:
        _num_blocks = 0
        _wake_up()


os.register_at_fork(after_in_child=_begin_anew)
