"""Hooks around the batches of an evaluation or a prediction, with the session and the values that they see."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psflow.ps_runtime.errors import NanLossError
from psflow.ps_runtime.metrics import Metric
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.hooks.base import Fetches, HookCalls, SessionRunArgs, SessionRunHook, pick
from psflow.ps_runtime.model.scaffold import Scaffold
from psflow.ps_runtime.model.session_start import check_ready
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.numeric import read_only

logger = logging.getLogger(__name__)


class BatchSession:
    """An evaluation or a prediction as hooks see it in ``run_context.session``."""

    def __init__(self, values: ModelValues, global_step: int) -> None:
        self.global_step = global_step
        self.variables = {name: read_only(value) for name, value in values.variables.items()}
        self.table_names = tuple(values.tables)
        self.spec: EstimatorSpec | None = None
        """The EstimatorSpec of the last batch; None before the first."""
        self.metrics: Mapping[str, Metric] = {}
        """Metrics over all batches so far."""
        self.staleness = 0
        """Always 0, as nothing is pushed."""

    @property
    def fault(self) -> NanLossError | None:
        """Return the loss of the last batch as an error, if it is NaN or infinite."""
        loss = None if self.spec is None else self.spec.loss
        return None if loss is None or math.isfinite(loss) else NanLossError(float(loss), self.global_step, "")

    def run(self, fetches: Fetches) -> Any:
        """Return variables, metrics over all batches so far, or other values of the last batch."""
        return pick(fetches, BatchValues(self), self.table_names)

    def report(self, global_step: int, values: Mapping[str, Any]) -> None:
        """Log values that a hook reports."""
        logger.info("step %d: %s", global_step, dict(values))


class BatchValues(Mapping[str, Any]):
    """The values that hooks may fetch of a batch, looked up on demand."""

    def __init__(self, session: BatchSession) -> None:
        self._session = session
        spec = session.spec
        predictions = {} if spec is None or spec.predictions is None else spec.predictions
        self._predictions = predictions if isinstance(predictions, Mapping) else {"predictions": predictions}
        self._loss = None if spec is None else spec.loss

    def __getitem__(self, name: str) -> Any:
        if name == "global_step":
            return self._session.global_step
        if name == "loss" and self._loss is not None:
            return float(self._loss)
        if name in self._predictions:
            return self._predictions[name]
        if name in self._session.metrics:
            return self._session.metrics[name].result()
        return self._session.variables[name].copy()

    def __iter__(self) -> Iterator[str]:
        yield "global_step"
        yield from () if self._loss is None else ("loss",)
        yield from (*self._predictions, *self._session.metrics, *self._session.variables)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class BatchHooks:
    """Calls hooks around each batch. The hooks of model_fn are known, and all begin, after its first call."""

    def __init__(self, hooks: Sequence[SessionRunHook], session: BatchSession) -> None:
        self._given = hooks
        self._session = session
        self._calls: HookCalls | None = None
        self._args = SessionRunArgs()

    def before_batch(self) -> None:
        """Prepare a batch, before model_fn is called."""
        if self._calls is not None:
            self._calls.before_run(self._args)

    def called(self, scaffold: Scaffold | None, of_model: Sequence[SessionRunHook], fetches: Fetches) -> bool:
        """Begin after the first call of model_fn. Return whether to call it again, as the model was prepared only now.

        Raises UsageError if the scaffold reports that the model is not ready.
        """
        if self._calls is not None:
            return False
        self._args = SessionRunArgs(fetches)
        self._calls = HookCalls((*self._given, *of_model), self._session, self._session.table_names)
        self._calls.begin()
        is_prepared = check_ready(scaffold, self._session)
        self._calls.after_create_session()
        self._calls.before_run(self._args)
        return is_prepared

    def after_batch(self) -> bool:
        """End a batch; return whether a hook requests a stop."""
        assert self._calls is not None
        self._calls.after_run(BatchValues(self._session))
        return self._calls.coordinator.should_stop()

    def end(self) -> None:
        """Call `end` of the hooks."""
        if self._calls is not None:
            self._calls.end()
