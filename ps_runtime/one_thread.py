"""One thread for linear algebra while roles, evaluations or predictions run, however many share a process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from threadpoolctl import ThreadpoolController

__all__ = ["one_thread"]


class _Limit:
    """What BLAS has been told, for the whole process: the first holder limits it, the last one gives it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_holders = 0
        self._limits = ExitStack()

    def take(self, blas: ThreadpoolController) -> None:
        with self._lock:
            self._num_holders += 1
            if any(library["num_threads"] > 1 for library in blas.info()):  # also one that was loaded since
                self._limits.enter_context(blas.limit(limits=1))

    def give_back(self) -> None:
        with self._lock:
            self._num_holders -= 1
            if not self._num_holders:
                self._limits.close()


_limit = _Limit()


@contextmanager
def one_thread() -> Iterator[None]:
    """Have BLAS and OpenMP compute in the calling thread alone during the block.

    Notes
    -----
    Any number of blocks may overlap, in any threads of a process, and end in any order: BLAS, whose setting is that of
    the process, gets its threads back with the last of them. That of OpenMP is the thread's own.
    """
    libraries = ThreadpoolController()
    _limit.take(libraries.select(user_api="blas"))
    try:
        with libraries.select(user_api="openmp").limit(limits=1):
            yield
    finally:
        _limit.give_back()
