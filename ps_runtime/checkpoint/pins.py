"""Pins: protect a checkpoint from collection while a reader uses it.

A pin is an empty file whose name holds all its data, so that one listing reads all pins. Pins are stored next to
``checkpoints/``: reading never writes into that directory.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterator

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.errors import StorageError

logger = logging.getLogger(__name__)

STALE_SECS = 3600.0
"""A pin that was not renewed for this many seconds belongs to a dead reader."""
RENEW_SECS = 600.0

_NAME = re.compile(r"step_(\d+)\.at_(\d+)\.[\w-]+\.[0-9a-f]+")


class Pins:
    """The pins of one model_dir.

    Notes
    -----
    Thread-safe. While pins are held, one thread renews all of them.
    """

    def __init__(self, files: FileStore, clock: Callable[[], float]) -> None:
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._held: list[_Pin] = []
        self._released = threading.Event()

    @contextlib.contextmanager
    def hold(self, step: int, holder: str) -> Iterator[None]:
        """Pin `step` for the duration of the block, however long. `holder` is a name for messages.

        If the directory is not writable, the block runs without a pin, and a warning reports the risk.
        """
        pin = _Pin(step, holder)
        try:
            self._mark(pin)
        except (OSError, StorageError) as error:
            logger.warning(
                "%s reads checkpoint %d without a pin, and a training job may remove it at the same time: %s",
                holder,
                step,
                error,
            )
            yield
            return
        self._begin_renewing(pin)
        try:
            yield
        finally:
            self._end(pin)

    def renew(self) -> None:
        """Update the dates of the held pins; a pin that cannot be written keeps its date, with a warning."""
        with self._lock:
            for pin in self._held:
                before = pin.name
                try:
                    self._mark(pin)
                    if pin.name != before:
                        self._files.remove(before)
                except (OSError, StorageError) as error:
                    logger.warning("cannot renew the pin of checkpoint %d, trying again: %s", pin.step, error)

    def steps(self, now: float) -> set[int]:
        """Return the steps that are pinned at Unix time `now`; remove the pins of dead readers."""
        pinned = set()
        for name in self._files.names("pins"):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            if now - int(match[2]) > STALE_SECS:
                self._files.remove(f"pins/{name}")
            else:
                pinned.add(int(match[1]))
        return pinned

    def _mark(self, pin: _Pin) -> None:
        name = f"pins/step_{pin.step:08d}.at_{int(self._clock())}.{pin.holder}"
        self._files.mark(name)
        pin.name = name

    def _begin_renewing(self, pin: _Pin) -> None:
        with self._lock:
            self._held.append(pin)
            if len(self._held) == 1:
                self._released = threading.Event()
                threading.Thread(
                    target=self._renew_until, args=(self._released,), name="psflow-pins", daemon=True
                ).start()

    def _end(self, pin: _Pin) -> None:
        with self._lock:
            self._held.remove(pin)
            if not self._held:
                self._released.set()
            self._files.remove(pin.name)

    def _renew_until(self, released: threading.Event) -> None:
        while not released.wait(RENEW_SECS):
            self.renew()


class _Pin:
    """A held pin, and its current file."""

    def __init__(self, step: int, holder: str) -> None:
        self.step = step
        self.holder = f"{re.sub(r'[^A-Za-z0-9_-]', '_', holder) or '_'}.{secrets.token_hex(4)}"
        self.name = ""
