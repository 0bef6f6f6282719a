"""What a person reads while a job runs: a line for each thing that happens."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

__all__ = ["Progress"]

LoggerLike = logging.Logger | logging.LoggerAdapter[logging.Logger]


class Progress:
    """Turns the events of a job into log lines.

    Parameters
    ----------
    logger : logger
    max_steps : int or None
    """

    def __init__(self, logger: LoggerLike, max_steps: int | None) -> None:
        self._logger = logger
        self._of = "" if max_steps is None else f"/{max_steps}"
        self.first_step_at: float | None = None
        """Unix time of the first training step of any replica."""

    def handle(self, event: Mapping[str, Any]) -> None:
        """Take an event of a role."""
        match event["kind"]:
            case "first_step":
                self.first_step_at = min(self.first_step_at or event["time"], event["time"])
            case "metrics":
                self._logger.info("step %s%s: %s", event["step"], self._of, _shown(event["values"]))
            case "checkpoint":
                self._logger.info("checkpoint of step %s in %s", event["step"], event["path"])
            case "evaluation":
                self._logger.info("evaluation of step %s: %s", event["step"], _shown(event["metrics"]))
            case "export":
                what = "the best model so far" if event["best"] else "a model"
                self._logger.info("exported %s, of step %s: %s", what, event["step"], event["path"])


def _shown(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
