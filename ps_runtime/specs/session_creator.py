"""How a session of a task begins, as its worker context says; `MonitoredTrainingSession` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ChiefSessionCreator", "SessionCreator", "WorkerSessionCreator"]


@dataclass(frozen=True)
class ChiefSessionCreator:
    """Its session restores the latest checkpoint, or gives the variables their first values."""

    master: str
    config: Mapping[str, Any]
    checkpoint_dir: str | None


@dataclass(frozen=True)
class WorkerSessionCreator:
    """Its session waits until that of the chief is there."""

    master: str
    config: Mapping[str, Any]
    max_wait_secs: float


SessionCreator = ChiefSessionCreator | WorkerSessionCreator
