"""The session of a training replica: first call, hooks, steps, end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psflow.ps_runtime.client.training import JobEnd, TrainingClient
from psflow.ps_runtime.data.arrays import num_rows
from psflow.ps_runtime.errors import ModelFnError, NanGradientError, NanLossError
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
from psflow.ps_runtime.model.scope import read_only
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.roles.step_source import InTurn, OneAhead, Reader, StepSource, Work, next_work
from psflow.ps_runtime.specs.variables import ModelSpec

__all__ = ["MonitoredSession", "build_model"]

HooksOf = Callable[[BuiltModel], Sequence[SessionRunHook]]
"""Chooses the hooks of a session once the first call of model_fn is made."""


def build_model(caller: ModelCaller, batch: tuple[Any, Any], seed: int, expected: ModelSpec) -> BuiltModel:
    """Make the first training call and hold it against what the job expects.

    Raises
    ------
    ModelFnError
        If model_fn builds a different model here than where the job was planned.
    """
    built = caller.build(*batch, ModeKeys.TRAIN, seed)
    differences = expected.differences(replace(built.model, schema=expected.schema))  # its batch has that already
    if differences:
        raise ModelFnError(
            (
                f"{caller.name} builds a different model on this Dask worker than in the process that planned the job",
                *differences,
            )
        )
    return built


@dataclass
class MonitoredSession:
    """Runs the steps of one training replica.

    It makes the first call, tells the hooks, then repeats: pull, call model_fn, push; until the job ends.

    Parameters
    ----------
    client : TrainingClient
        Pulls, pushes and asks for tickets in the name of this replica.
    reader : Reader
        Gives the batch of a ticket.
    caller : ModelCaller
        Calls model_fn, and gives the loss and its gradients.
    model : ModelSpec
        What the job expects of model_fn.
    seed : int
        Of the job; what is random is drawn from it.
    hooks_of : callable
        Makes the hooks of this replica from the first call of model_fn.
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
        self.fault: NanLossError | NanGradientError | None = None
        """Why the last step was not pushed."""
        self.staleness = self.staleness_sum = 0
        """Of the last push; of all pushes."""
        self.summaries: Mapping[str, Any] = {}
        self.coordinator = Coordinator()
        self.built: BuiltModel | None = None
        self._context = SessionRunContext(self, self.coordinator)
        self._table_names = [table.name for table in self.model.tables]
        self.variables = {name: read_only(view) for name, view in self.client.variables.items()}
        """The variables as last pulled: read-only views, refreshed in place."""

    def run(self) -> JobEnd:
        """Train until the job ends."""
        work = next_work(self.client, self.reader, self.client.next_grant())
        if isinstance(work, JobEnd):
            return work
        if self.built is None:
            self.built = build_model(self.caller, work.batch, self.seed, self.model)
        source = self._step_source(self.built)
        self._hooks = list(self.hooks_of(self.built))
        for hook in self._hooks:
            hook.begin()
        self.global_step = work.grant.global_step
        self.client.pull()
        for hook in self._hooks:
            hook.after_create_session(self, self.coordinator)
        end = self._loop(source, work)
        for hook in self._hooks:
            hook.end(self)
        return end

    def _step_source(self, built: BuiltModel) -> StepSource:
        self._gradient_fn = GradientFn(self.caller, built)
        if self.pipeline_depth:
            return OneAhead(self.client, self.reader, self._call_model_fn, self.model.tables, built.table_features)
        return InTurn(self.client, self.reader, self._call_model_fn)

    def _loop(self, source: StepSource, work: Work | JobEnd) -> JobEnd:
        """Use ticket after ticket, until there are no more or somebody asks to stop."""
        while not isinstance(work, JobEnd):
            if self.coordinator.stop_reason is not None:
                work = next_work(self.client, self.reader, self.client.stop(self.coordinator.stop_reason))
            else:
                work = self._step(source, work)
        return work

    def _step(self, source: StepSource, work: Work) -> Work | JobEnd:
        source.pull(work)
        wanted = [hook.before_run(self._context) for hook in self._hooks]
        result = source.compute(work)
        num_examples = num_rows(work.batch[0])
        self.fault = self._push(source, work, result, num_examples)
        self.num_examples, self.loss, self.summaries = num_examples, result.loss, result.summaries
        self._tell(wanted, result)
        if self.fault is not None and self.coordinator.stop_reason is None:
            raise self.fault
        self.on_step(self)
        return source.following()

    def _push(
        self, source: StepSource, work: Work, result: StepResult, num_examples: int
    ) -> NanLossError | NanGradientError | None:
        """Push the gradients; or return why not: then the guard among the hooks ends training, and no ps is spoilt."""
        if not math.isfinite(result.loss):
            cell = self.reader.first_non_finite_cell(work.grant.records, work.batch)
            return NanLossError(result.loss, self.global_step, cell)
        try:
            self.global_step, staleness = source.push(work, result, num_examples)
        except NanGradientError as error:
            return error
        self.num_steps += 1
        if staleness is not None:
            self.staleness = staleness
            self.staleness_sum += staleness
        return None

    def _call_model_fn(self, work: Work) -> StepResult:
        return self._gradient_fn(
            *work.batch,
            self.variables,
            work.grant.global_step,
            self.client.rows,
            work.lookups,
            self.client.gradient_buffers,
        )

    def _tell(self, wanted: Sequence[SessionRunArgs | None], result: StepResult) -> None:
        values = _Fetched(self, result)
        for hook, args in zip(self._hooks, wanted, strict=True):
            picked = None if args is None else pick(args.fetches, values, self._table_names)
            hook.after_run(self._context, SessionRunValues(picked))


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
        if name in self._result.spec.metrics:
            return self._result.spec.metrics[name].result()
        return self._session.variables[name].copy()

    def __iter__(self) -> Iterator[str]:
        predictions = self._result.spec.predictions
        yield from ("loss", "global_step", *self._result.summaries)
        yield from predictions if isinstance(predictions, Mapping) else ()
        yield from (*self._result.spec.metrics, *self._session.variables)

    def __len__(self) -> int:
        return sum(1 for _ in self)
