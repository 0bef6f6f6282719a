"""How a session of a task begins, as its worker context says; `MonitoredTrainingSession` takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ChiefSessionCreator", "SessionCreator", "WorkerSessionCreator"]


@dataclass(frozen=True)
class ChiefSessionCreator:
    """Its session restores the latest checkpoint, or gives the variables their first values.

    Parameters
    ----------
    master : str
        The task that it belongs to; empty without a cluster.
    config : mapping
        The settings of the coordinator's ``session_config``, and those of the call.
    checkpoint_dir : str or None
        Where checkpoints are; None: in the model_dir of the Estimator.
    """

    master: str
    config: Mapping[str, Any]
    checkpoint_dir: str | None


@dataclass(frozen=True)
class WorkerSessionCreator:
    """Its session waits until that of the chief is there.

    Parameters
    ----------
    master : str
        The task that it belongs to.
    config : mapping
        As that of a chief.
    max_wait_secs : float
        As the call gave it; it has no effect.
    """

    master: str
    config: Mapping[str, Any]
    max_wait_secs: float


SessionCreator = ChiefSessionCreator | WorkerSessionCreator
