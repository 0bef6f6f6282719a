"""How a Dask worker that has done something for psflow ends."""

from __future__ import annotations

import atexit
import functools
import gc

__all__ = ["leave_quickly"]


@functools.cache
def leave_quickly() -> None:
    """Have this process look for no garbage as it ends. Idempotent.

    In all that roles import and make this takes seconds, after which the nanny kills the process, and says so.
    """
    atexit.register(gc.freeze)
