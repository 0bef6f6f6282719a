"""Waits for actions of another thread."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.limits import HANG_SECS

__all__ = ["wait_until"]


def wait_until(is_so: Callable[[], bool], timeout_secs: float = HANG_SECS) -> None:
    """Return once `is_so`; AssertionError if that is not within `timeout_secs`."""
    deadline = time.monotonic() + timeout_secs
    while not is_so():
        assert time.monotonic() < deadline, f"not so within {timeout_secs:g} s"
        time.sleep(0.001)
