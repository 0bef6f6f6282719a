"""A hook that logs values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from psflow.ps_runtime.model.hook_timer import SecondOrStepTimer, check_period
from psflow.ps_runtime.model.hooks import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from psflow.ps_runtime.specs.arguments import ArgumentFaults

__all__ = ["LoggingTensorHook"]

logger = logging.getLogger(__name__)


class LoggingTensorHook(SessionRunHook):
    """Log fetched values now and then, at level INFO: ``loss = 0.5, global_step = 100 (1.240 sec)``.

    Parameters
    ----------
    tensors : str, or sequence or mapping of str
        Names as in SessionRunArgs; a mapping gives them titles, which are logged in alphabetical order.
    every_n_iter : int, optional
        Log every so many runs of this role, from its first on; or
    every_n_secs : float, optional
        every so many seconds. At most one of them; none only with `at_end`.
    at_end : bool
        Whether to log at the end, too: variables and the global_step of then, the rest as of the last run.
    formatter : callable, optional
        Takes the values by title, returns the line.

    Raises
    ------
    UsageError
        If it is not said when to log, or a period is not greater than 0; an ArgumentTypeError for a wrong type.
    """

    def __init__(
        self,
        tensors: str | Sequence[str] | Mapping[str, str],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        _check_arguments(tensors, at_end, formatter)
        if isinstance(tensors, Mapping):
            self._tensors = {title: tensors[title] for title in sorted(tensors)}
        else:
            self._tensors = {name: name for name in ([tensors] if isinstance(tensors, str) else tensors)}
        self._timer: SecondOrStepTimer | None = None
        if every_n_iter is not None or every_n_secs is not None or not at_end:
            check_period(every_n_iter=every_n_iter, every_n_secs=every_n_secs)
            self._timer = SecondOrStepTimer(every_n_secs, every_n_iter)
        self._at_end = at_end
        self._formatter = formatter

    def begin(self) -> None:
        """Count anew."""
        if self._timer is not None:
            self._timer.reset()
        self._count = 0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetch the values, if this run is to be logged."""
        self._is_due = self._timer is not None and self._timer.should_trigger_for_step(self._count)
        return SessionRunArgs(self._tensors) if self._is_due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log the values, if this run is to be."""
        if self._is_due:
            self._log(run_values.results)
        self._count += 1

    def end(self, session: Any) -> None:
        """Log the values of the end, if they are wanted."""
        if self._at_end:
            self._log(session.run(self._tensors))

    def _log(self, values: Mapping[str, Any]) -> None:
        secs = None if self._timer is None else self._timer.update_last_triggered_step(self._count)[0]
        if self._formatter is not None:
            logger.info("%s", self._formatter(values))
            return
        with np.printoptions(suppress=True):
            line = ", ".join(f"{title} = {value}" for title, value in values.items())
        logger.info("%s", line if secs is None else f"{line} ({secs:.3f} sec)")


def _check_arguments(tensors: Any, at_end: Any, formatter: Any) -> None:
    faults = ArgumentFaults("LoggingTensorHook: ")
    named = [*tensors, *tensors.values()] if isinstance(tensors, Mapping) else tensors
    are_names = isinstance(named, Sequence) and all(isinstance(name, str) for name in named)
    if not are_names or isinstance(tensors, bytes):
        faults.add_type("tensors", "a name, or a sequence or mapping of names", tensors)
    faults.flag("at_end", at_end)
    if formatter is not None:
        faults.callable("formatter", formatter)
    faults.raise_any()
