"""One thread for linear algebra while roles, evaluations or predictions run, however many share a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from threadpoolctl import ThreadpoolController

from psflow.ps_runtime.held_setting import HeldSetting

__all__ = ["one_thread"]


_blas = HeldSetting()


@contextmanager
def one_thread() -> Iterator[None]:
    """Have BLAS and OpenMP compute in the calling thread alone during the block.

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
