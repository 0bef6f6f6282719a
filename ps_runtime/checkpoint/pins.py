"""Pins: how a reader keeps a checkpoint from being collected while it reads it.

A pin is an empty file whose name says everything, so one listing tells all pins. Pins lie beside ``checkpoints/``,
not in it: reading never writes where checkpoints live.
"""

from __future__ import annotations

import contextlib
import logging
import re
import secrets
from collections.abc import Iterator

from ps_runtime.checkpoint.file_store import FileStore

__all__ = ["STALE_SECS", "Pins"]

logger = logging.getLogger(__name__)

STALE_SECS = 3600.0
"""The reader of an older pin is taken for dead."""

_NAME = re.compile(r"step_(\d+)\.at_(\d+)\.[\w-]+\.[0-9a-f]+")


class Pins:
    """The pins of one model_dir.

    Parameters
    ----------
    files : FileStore
        Of the model_dir.
    """

    def __init__(self, files: FileStore) -> None:
        self._files = files

    @contextlib.contextmanager
    def hold(self, step: int, holder: str, now: float) -> Iterator[None]:
        """Pin `step` for the duration of the block. `now` is Unix time, `holder` a name for people.

        Where nothing can be written, the block runs without a pin, and a warning says what may happen then.
        """
        who = re.sub(r"[^A-Za-z0-9_-]", "_", holder) or "_"
        name = f"pins/step_{step:08d}.at_{int(now)}.{who}.{secrets.token_hex(4)}"
        try:
            self._files.mark(name)
        except OSError as error:
            logger.warning(
                "%s reads checkpoint %d without a pin, so a training job may remove it meanwhile: %s",
                holder,
                step,
                error,
            )
            yield
            return
        try:
            yield
        finally:
            self._files.remove(name)

    def steps(self, now: float) -> set[int]:
        """Return the steps that are pinned at Unix time `now`; forget the pins of the dead."""
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
