"""Limits linear algebra to one thread while roles, evaluations or predictions run in a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from threadpoolctl import ThreadpoolController


class HeldSetting:
    """Counts the blocks that hold a setting; the last one restores the former setting.

    Notes
    -----
    Thread-safe: blocks may overlap in any threads of the process, and end in any order.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_holders = 0
        self._undo = ExitStack()

    @contextmanager
    def held(self, change: Callable[[], AbstractContextManager[object] | None]) -> Iterator[None]:
        """Hold the setting for a block."""
        with self._lock:
            if (changed := change()) is not None:
                self._undo.enter_context(changed)
            self._num_holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_holders -= 1
                if not self._num_holders:
                    self._undo.close()


_blas = HeldSetting()


@contextmanager
def one_thread() -> Iterator[None]:
    """Have BLAS and OpenMP compute only in the calling thread during the block.

    Notes
    -----
    Any number of blocks may overlap, in any threads of a process, and end in any order: BLAS, whose setting is that of
    the process, gets its threads back with the last of them. That of OpenMP is the thread's own.
    """
    libraries = ThreadpoolController()
    blas = libraries.select(user_api="blas")
    with _blas.held(lambda: _limited(blas)), libraries.select(user_api="openmp").limit(limits=1):
        yield


def _limited(blas: ThreadpoolController) -> AbstractContextManager[object] | None:
    has_more = any(library["num_threads"] > 1 for library in blas.info())  # also one that was loaded since
    limit: AbstractContextManager[object] | None = blas.limit(limits=1) if has_more else None
    return limit
