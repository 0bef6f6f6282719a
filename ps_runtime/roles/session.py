"""The session of a training replica: first call, hooks, steps, end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ps_runtime.client.training import Grant, JobEnd, TrainingClient
from ps_runtime.errors import ModelFnError
from ps_runtime.model.caller import BuiltModel, ModelCaller
from ps_runtime.model.gradients import GradientFn, StepResult
from ps_runtime.model.hooks import (
    Coordinator,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    pick,
)
from ps_runtime.model.scope import read_only
from ps_runtime.model.spec import ModeKeys
from ps_runtime.server.input_position import RecordRange
from ps_runtime.specs.variables import ModelSpec

__all__ = ["MonitoredSession", "build_model"]

HooksOf = Callable[[BuiltModel], Sequence[SessionRunHook]]
"""Chooses the hooks of a session once the first call of model_fn is made."""


class Reader(Protocol):
    """Reads the batch of a grant."""

    def read(self, records: RecordRange) -> tuple[Any, Any] | None:
        """Return features and labels, or None if the input ended before them."""


def build_model(caller: ModelCaller, batch: tuple[Any, Any], seed: int, expected: ModelSpec) -> BuiltModel:
    """Make the first training call and hold it against what the job expects.

    Raises
    ------
    ModelFnError
        If model_fn makes another model here than where the job was planned.
    """
    built = caller.build(*batch, ModeKeys.TRAIN, seed)
    differences = expected.differences(built.model)
    if differences:
        raise ModelFnError((f"{caller.name} makes another model here than where the job was planned", *differences))
    return built


@dataclass
class MonitoredSession:
    """Runs the steps of one training replica.

    It makes the first call, tells the hooks, then repeats: pull, call model_fn, push; until the job ends.

    Parameters
    ----------
    client : TrainingClient
    reader : Reader
    caller : ModelCaller
    model : ModelSpec
        What the job expects of model_fn.
    seed : int
    hooks_of : callable
    on_step : callable
        Called after each step with the session: the role's own work.
    """

    client: TrainingClient
    reader: Reader
    caller: ModelCaller
    model: ModelSpec
    seed: int
    hooks_of: HooksOf
    on_step: Callable[[MonitoredSession], None]

    def __post_init__(self) -> None:
        self.global_step = 0
        self.num_steps = 0
        self.num_examples = 0
        """Rows of the last batch."""
        self.loss = float("nan")
        self.summaries: Mapping[str, Any] = {}
        self.coordinator = Coordinator()
        self.built: BuiltModel | None = None
        self.variables = {name: read_only(view) for name, view in self.client.variables.items()}
        """The variables as last pulled: read-only views, refreshed in place."""

    def run(self) -> JobEnd:
        """Train until the job ends."""
        answer = self._skip_to_batch(self.client.next_grant())
        if isinstance(answer, JobEnd):
            return answer
        if self.built is None:
            self.built = build_model(self.caller, answer[1], self.seed, self.model)
        gradient_fn = GradientFn(self.caller, self.built)
        self._hooks = list(self.hooks_of(self.built))
        for hook in self._hooks:
            hook.begin()
        self.global_step = answer[0].global_step
        self.client.pull()
        for hook in self._hooks:
            hook.after_create_session(self, self.coordinator)
        end = self._loop(gradient_fn, answer)
        for hook in self._hooks:
            hook.end(self)
        return end

    def _loop(self, gradient_fn: GradientFn, answer: tuple[Grant, Any] | JobEnd) -> JobEnd:
        while not isinstance(answer, JobEnd):
            if self.coordinator.stop_reason is not None:
                answer = self._skip_to_batch(self.client.stop(self.coordinator.stop_reason))
                continue
            answer = self._skip_to_batch(self._step(gradient_fn, *answer))
        return answer

    def _step(self, gradient_fn: GradientFn, grant: Grant, batch: tuple[Any, Any]) -> Grant | JobEnd:
        context = SessionRunContext(self, self.coordinator)
        wanted = [hook.before_run(context) for hook in self._hooks]
        self.client.pull()
        features, labels = batch
        result = gradient_fn(features, labels, self.variables, grant.global_step)
        num_examples = _num_rows(features)
        answer: Grant | JobEnd = grant
        if math.isfinite(result.loss):  # else the guard among the hooks ends training, and no ps is spoilt
            answer = self.client.push(result.gradients, result.learning_rates, num_examples)
            self.num_steps += 1
        self.global_step = answer.global_step
        self.num_examples, self.loss, self.summaries = num_examples, result.loss, result.summaries
        self._tell(context, wanted, result)
        self.on_step(self)
        return answer

    def _tell(self, context: SessionRunContext, wanted: Sequence[SessionRunArgs | None], result: StepResult) -> None:
        values = _Fetched(self, result)
        for hook, args in zip(self._hooks, wanted, strict=True):
            picked = None if args is None else pick(args.fetches, values)
            hook.after_run(context, SessionRunValues(picked))

    def _skip_to_batch(self, answer: Grant | JobEnd) -> tuple[Grant, Any] | JobEnd:
        """Read the batch of a grant; where a stream has ended, ask what comes instead."""
        while isinstance(answer, Grant):
            batch = self.reader.read(answer.records)
            if batch is not None:
                return answer, batch
            answer = self.client.next_grant()
        return answer


class _Fetched(Mapping[str, Any]):
    """What hooks may fetch of a step, looked up when asked for."""

    def __init__(self, session: MonitoredSession, result: StepResult) -> None:
        self._session = session
        self._result = result

    def __getitem__(self, name: str) -> Any:
        if name == "loss":
            return self._result.loss
        if name == "global_step":
            return self._session.global_step
        if name in self._result.summaries:
            return self._result.summaries[name]
        predictions = self._result.spec.predictions
        if isinstance(predictions, Mapping) and name in predictions:
            return predictions[name]
        if name in self._result.spec.eval_metric_ops:
            return self._result.spec.eval_metric_ops[name].result()
        return self._session.variables[name].copy()

    def __iter__(self) -> Iterator[str]:
        predictions = self._result.spec.predictions
        yield from ("loss", "global_step", *self._result.summaries)
        yield from predictions if isinstance(predictions, Mapping) else ()
        yield from (*self._result.spec.eval_metric_ops, *self._session.variables)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _num_rows(features: Any) -> int:
    while isinstance(features, Mapping):
        features = next(iter(features.values()))
    return int(np.shape(features)[0]) if np.ndim(features) else 1
