"""The session of a training replica: first call, hooks, steps, end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.client.push_writer import Gradients
from psflow.ps_runtime.client.training import Grant, JobEnd, TrainingClient
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.model.caller import BuiltModel, ModelCaller
from psflow.ps_runtime.model.gradients import GradientFn, StepResult
from psflow.ps_runtime.model.hooks import (
    Coordinator,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    pick,
)
from psflow.ps_runtime.model.lookups import Lookups
from psflow.ps_runtime.model.scope import KeyPath, read_only
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.input import RecordRange
from psflow.ps_runtime.specs.variables import ModelSpec

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
        If model_fn builds another model here than where the job was planned.
    """
    built = caller.build(*batch, ModeKeys.TRAIN, seed)
    differences = expected.differences(built.model)
    if differences:
        raise ModelFnError((f"{caller.name} builds another model here than where the job was planned", *differences))
    return built


@dataclass(slots=True)
class _Work:
    """A ticket, its batch, and what is known of the ids in it."""

    grant: Grant
    batch: tuple[Any, Any]
    lookups: Lookups = field(default_factory=Lookups)
    versions: tuple[int, ...] = ()
    """Of each shard, as pulled for it."""


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
    pipeline_depth : int
        0, or 1: the next batch is read and its values pulled while a gradient is computed.
    """

    client: TrainingClient
    reader: Reader
    caller: ModelCaller
    model: ModelSpec
    seed: int
    hooks_of: HooksOf
    on_step: Callable[[MonitoredSession], None]
    pipeline_depth: int = 0

    def __post_init__(self) -> None:
        self.global_step = 0
        self.num_steps = 0
        self.num_examples = 0
        """Rows of the last batch."""
        self.loss = float("nan")
        self.staleness = self.staleness_sum = 0
        """Of the last push; of all pushes."""
        self.summaries: Mapping[str, Any] = {}
        self.coordinator = Coordinator()
        self.built: BuiltModel | None = None
        self._further: Grant | None = None
        self._context = SessionRunContext(self, self.coordinator)
        self._table_names = [table.name for table in self.model.tables]
        self.variables = {name: read_only(view) for name, view in self.client.variables.items()}
        """The variables as last pulled: read-only views, refreshed in place."""

    def run(self) -> JobEnd:
        """Train until the job ends."""
        answer = self._skip_to_batch(self.client.next_grant())
        if isinstance(answer, JobEnd):
            return answer
        if self.built is None:
            self.built = build_model(self.caller, answer.batch, self.seed, self.model)
        gradient_fn = GradientFn(self.caller, self.built)
        self._hooks = list(self.hooks_of(self.built))
        for hook in self._hooks:
            hook.begin()
        self.global_step = answer.grant.global_step
        self.client.pull()
        for hook in self._hooks:
            hook.after_create_session(self, self.coordinator)
        end = self._loop(gradient_fn, answer)
        for hook in self._hooks:
            hook.end(self)
        return end

    def _loop(self, gradient_fn: GradientFn, work: _Work | JobEnd) -> JobEnd:
        """Use ticket after ticket; with a pipeline, hold the next one while this one is used."""
        is_pulled = False
        while not isinstance(work, JobEnd):
            if self.coordinator.stop_reason is not None:
                work, is_pulled = self._skip_to_batch(self.client.stop(self.coordinator.stop_reason)), False
                continue
            if not is_pulled:
                self._start_pull(work)
                work.versions = self.client.finish_pull()
            ahead = self._look_ahead() if self.pipeline_depth else None
            answer = self._step(gradient_fn, work, ahead)
            work, is_pulled = (self._skip_to_batch(answer), False) if ahead is None else (ahead, True)
        return work

    def _look_ahead(self) -> _Work | None:
        """Return what is to be done after this step, if there is a ticket for it now."""
        grant = self._further or self.client.further_grant()
        self._further = None
        if not isinstance(grant, Grant):
            return None
        batch = self.reader.read(grant.records)
        assert batch is not None, "a stream has no pipeline"
        return _Work(grant, batch)

    def _step(self, gradient_fn: GradientFn, work: _Work, ahead: _Work | None) -> Grant | JobEnd:
        wanted = [hook.before_run(self._context) for hook in self._hooks]
        features, labels = work.batch
        overlaps = ahead is not None and self._ids_are_features
        if ahead is not None and overlaps:
            self._start_pull(ahead)
        result = gradient_fn(
            features,
            labels,
            self.variables,
            work.grant.global_step,
            self.client.rows,
            work.lookups,
            self.client.gradient_buffers,
        )
        if ahead is not None:
            result = result._replace(gradients=_kept(result.gradients))
            if not overlaps:
                self._start_pull(ahead)
            ahead.versions = self.client.finish_pull()
        num_examples = _num_rows(features)
        answer: Grant | JobEnd = work.grant
        if math.isfinite(result.loss):  # else the guard among the hooks ends training, and no ps is spoilt
            self.client.start_push(result.gradients, result.learning_rates, num_examples, work.versions)
            answer = self._next_ticket(ahead)
        self.num_examples, self.loss, self.summaries = num_examples, result.loss, result.summaries
        self._tell(wanted, result)
        self.on_step(self)
        return answer

    def _next_ticket(self, ahead: _Work | None) -> Grant | JobEnd:
        self.num_steps += 1
        answer = self.client.finish_push()
        if isinstance(answer, Grant):
            self.staleness = answer.staleness
            self.staleness_sum += answer.staleness
        if ahead is None:
            assert answer is not None
            self.global_step = answer.global_step
            return answer
        self._further = answer if isinstance(answer, Grant) else None
        self.global_step = ahead.grant.global_step if answer is None else answer.global_step
        return ahead.grant

    @property
    def _ids_are_features(self) -> bool:
        """Whether the first call of model_fn has shown which ids of a batch will be looked up."""
        assert self.built is not None
        return all(len(self.built.table_features.get(table.name, ())) == 1 for table in self.model.tables)

    def _start_pull(self, work: _Work) -> None:
        """Ask for the variables and, with a pipeline, for the rows that `work` will look up."""
        rows: dict[str, NDArray[np.int64]] = {}
        if self.pipeline_depth and self._ids_are_features:
            assert self.built is not None
            for table in self.model.tables:
                (path,) = self.built.table_features[table.name]
                rows[table.name] = work.lookups.of(table, _at(work.batch[0], path)).unique
        self.client.start_pull(rows)

    def _tell(self, wanted: Sequence[SessionRunArgs | None], result: StepResult) -> None:
        values = _Fetched(self, result)
        for hook, args in zip(self._hooks, wanted, strict=True):
            picked = None if args is None else pick(args.fetches, values, self._table_names)
            hook.after_run(self._context, SessionRunValues(picked))

    def _skip_to_batch(self, answer: Grant | JobEnd) -> _Work | JobEnd:
        """Read the batch of a grant; where a stream has ended, ask what comes instead."""
        while isinstance(answer, Grant):
            batch = self.reader.read(answer.records)
            if batch is not None:
                return _Work(answer, batch)
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


def _kept(gradients: Gradients) -> Gradients:
    """Return `gradients` such that no pull changes them: what cannot be written to may be a view of a variable."""
    return {
        name: gradient.copy() if isinstance(gradient, np.ndarray) and not gradient.flags.writeable else gradient
        for name, gradient in gradients.items()
    }


def _num_rows(features: Any) -> int:
    while not isinstance(features, np.ndarray) and isinstance(features, Mapping):
        features = next(iter(features.values()))
    shape = np.shape(features)
    return int(shape[0]) if shape else 1


def _at(features: Any, path: KeyPath) -> Any:
    for key in path:
        features = features[key]
    return features
