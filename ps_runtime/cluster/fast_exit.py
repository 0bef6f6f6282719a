"""Speeds up the exit of a process that has worked for psflow."""

from __future__ import annotations

import atexit
import functools
import gc


@functools.cache
def leave_quickly() -> None:
    """Skip garbage collection as this process ends. Idempotent.

    After all imports of roles and flows, a collection takes seconds, in which the nanny of a Dask worker kills it.
    """
    atexit.register(gc.freeze)
