"""How a process that is not a command of psflow, but has done something for it, ends."""

from __future__ import annotations

import atexit
import functools
import gc


@functools.cache
def leave_quickly() -> None:
    """Have this process look for no garbage as it ends. Idempotent.

    In all that roles and flows import and make this takes seconds, and the nanny of a Dask worker kills it meanwhile.
    """
    atexit.register(gc.freeze)
