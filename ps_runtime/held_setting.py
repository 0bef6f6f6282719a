"""A setting of the whole process, for blocks that may overlap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

__all__ = ["HeldSetting"]


class HeldSetting:
    """Counts the blocks that hold a setting: what they have changed is undone with the last of them.

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
