"""Provides the session of a training replica: first call, hooks, steps, end."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from psflow.ps_runtime.client.training import JobEnd, TrainingClient
from psflow.ps_runtime.data.arrays import num_rows
from psflow.ps_runtime.data.batch_check import named
from psflow.ps_runtime.errors import LabelError, ModelFnError, NanGradientError, NanLossError, UsageError
from psflow.ps_runtime.model.calls.caller import BuiltModel, ModelCaller
from psflow.ps_runtime.model.calls.gradients import GradientFn, StepResult
from psflow.ps_runtime.model.hooks.base import Fetches, HookCalls, SessionRunArgs, SessionRunHook, pick
from psflow.ps_runtime.model.lookups import Lookups
from psflow.ps_runtime.model.scaffold import Scaffold
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.model.summary_files import FileSummary
from psflow.ps_runtime.numeric import read_only
from psflow.ps_runtime.optimizers.base import Evaluations
from psflow.ps_runtime.roles.step_source import InTurn, KnownIds, OneAhead, Reader, StepSource, Work, next_work
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.variables import ModelSpec

logger = logging.getLogger(__name__)


@dataclass
class StepSession:
    """The last step of a replica, and the variables."""

    client: TrainingClient
    model: ModelSpec
    config: RunConfig
    is_chief: bool
    report: Callable[[int, Mapping[str, Any]], None] = field(repr=False)
    put_file: Callable[[int, str, bytes], None] = field(repr=False)
    gradients_per_step: int = 1
    can_pull: bool = True

    def __post_init__(self) -> None:
        self.global_step = 0
        self.num_steps = 0
        self.computed_at = 0
        """global_step of the variables that the last step used."""
        self.num_examples = 0
        """Rows of the last batch."""
        self.fault: NanLossError | NanGradientError | None = None
        """Why the last step was not pushed."""
        self.staleness = self.staleness_sum = 0
        """Of the last push; of all pushes."""
        self.result: StepResult | None = None
        """Result of model_fn in the last step; None before the first."""
        self.variables = {name: read_only(view) for name, view in self.client.variables.items()}
        """The variables as last pulled: read-only views, refreshed in place."""

    @property
    def loss(self) -> float:
        """The loss of the last step; NaN before the first."""
        return float("nan") if self.result is None else self.result.loss

    @property
    def summaries(self) -> Mapping[str, Any]:
        """The summaries of the last step."""
        return {} if self.result is None else self.result.summaries

    @property
    def file_summaries(self) -> Mapping[str, FileSummary]:
        """The histograms, images and texts of the last step, by the name of their files."""
        return {} if self.result is None else self.result.file_summaries

    def run(self, fetches: Fetches) -> Any:
        """Return variables and the global_step at present, anything else as of the last step. Blocks."""
        return pick(fetches, _ValuesNow(self, self.result))


TRAIN_OP = "train_op"
"""Fetching it asks for a step, where a session is fed; its value is None."""


class StepValues(Mapping[str, Any]):
    """The fetchable values of a step, looked up on demand."""

    def __init__(self, session: StepSession, result: StepResult | None) -> None:
        self._session = session
        self._result = result

    def __getitem__(self, name: str) -> Any:
        if name == "global_step":
            return self._session.global_step
        if name == TRAIN_OP:
            return None
        if (result := self._result) is not None:
            if name == "loss":
                return result.loss
            if name == "summaries":
                return dict(result.summaries)
            if name in result.summaries:
                return result.summaries[name]
            predictions = result.spec.predictions
            if isinstance(predictions, Mapping) and name in predictions:
                return predictions[name]
            if name in result.spec.metrics:
                return result.spec.metrics[name].result()
        return self._variable(name)

    def _variable(self, name: str) -> NDArray[Any]:
        return self._session.variables[name].copy()

    def __iter__(self) -> Iterator[str]:
        yield from ("global_step", TRAIN_OP)
        if (result := self._result) is not None:
            predictions = result.spec.predictions
            yield from ("loss", "summaries", *result.summaries)
            yield from predictions if isinstance(predictions, Mapping) else ()
            yield from result.spec.metrics
        yield from self._session.variables

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _ValuesNow(StepValues):
    """The same, with present variables: they are pulled once, on demand."""

    _is_fresh = False

    def _variable(self, name: str) -> NDArray[Any]:
        if name in self._session.variables and self._session.can_pull and not self._is_fresh:
            self._session.client.pull()
            self._is_fresh = True
        return super()._variable(name)


HooksOf = Callable[[BuiltModel], Sequence[SessionRunHook]]
"""Chooses the hooks of a session once the first call of model_fn is made."""

CLOSED = "its session was closed"


def _fed(work: Work, batch: tuple[Any, Any]) -> Work:
    return replace(work, batch=batch, lookups=Lookups(), versions=())


def build_model(caller: ModelCaller, batch: tuple[Any, Any], seed: int, expected: ModelSpec) -> BuiltModel:
    """Make the first training call, and check its model against the one that the job expects.

    Raises ModelFnError if model_fn builds a different model here than where the job was planned.
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
    """Trains one step at a time, as one replica of a job, with hooks around each step.

    ::

        with session:
            while not session.should_stop():
                loss, global_step = session.run(["loss", "global_step"])

    Entering it makes the first call of model_fn, calls the hooks, and pulls. Each `run` pulls, calls model_fn and
    pushes. Leaving it calls the hooks of the end, unless an error was raised. When the chief leaves, training ends once
    all workers have left: `should_stop` of each says so from then on.

    Notes
    -----
    Not thread-safe. A broken connection to a ps is made again; what cannot be recovered is raised by `run`, and the
    next session on the same model_dir begins with its latest checkpoint.
    """

    client: TrainingClient
    reader: Reader
    caller: ModelCaller
    model: ModelSpec
    seed: int
    evaluations: Evaluations
    step_session: StepSession
    hooks_of: HooksOf
    on_step: Callable[[MonitoredSession], None]
    before_step: Callable[[], None] = lambda: None
    await_ready: Callable[[Scaffold | None, StepSession], None] = lambda scaffold, session: None
    pipeline_depth: int = 0
    num_workers: int = 0

    def __post_init__(self) -> None:
        self.built: BuiltModel | None = None
        self.hooks = HookCalls((), self.step_session)
        self._args = SessionRunArgs("loss")
        self._table_names = [table.name for table in self.model.tables]
        self._work: Work | JobEnd | None = None
        """The next work; None before the session was entered."""
        self._has_begun = False

    def __enter__(self) -> Self:
        """Wait until the job is open, make the first call of model_fn, and call the hooks. Blocks."""
        work = self._work = next_work(self.client, self.reader, self.client.next_grant())
        self.step_session.global_step = work.global_step if isinstance(work, JobEnd) else work.grant.global_step
        if isinstance(work, JobEnd):
            return self
        if self.built is None:
            self.built = build_model(self.caller, work.batch, self.seed, self.model)
        self._source = self._step_source(self.built)
        self.hooks = HookCalls(self.hooks_of(self.built), self.step_session, self._table_names)
        self.hooks.begin()
        self.client.pull()
        self._has_begun = True
        self.await_ready(self.built.spec.scaffold, self.step_session)
        self.hooks.after_create_session()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Call the hooks of the end, unless an error was raised; as the chief, end training first. Blocks."""
        if kind is not None:
            return
        if not isinstance(self._work, JobEnd):
            is_asked = self.hooks.coordinator.should_stop()
            self.hooks.coordinator.request_stop(CLOSED)
            if self.step_session.is_chief or self.hooks.coordinator.ends_training:
                self._end_training(after_others=not is_asked)
        if self._has_begun:
            self.hooks.end()

    def should_stop(self) -> bool:
        """Whether the loop should end: it makes no further step, or the chief has left its own loop."""
        return self.has_ended or self.client.is_closing

    @property
    def has_ended(self) -> bool:
        """Whether there is no further step: the job has ended, or a hook asked to stop."""
        return isinstance(self._work, JobEnd) or self.hooks.coordinator.stop_reason is not None

    def request_stop(self, reason: str = "its session was asked to stop") -> None:
        """Make no further step, as `Coordinator.request_stop` does."""
        self.hooks.coordinator.request_stop(reason)

    def run(self, fetches: Fetches = "loss", batch: tuple[Any, Any] | None = None) -> Any:
        """Make one step, on `batch` or else on the next one; return its values in the structure of `fetches`. Blocks.

        Raises NanLossError or NanGradientError if the step computed something that is not finite, unless a
        NanTensorHook asks to stop instead.
        """
        if type(self._work) is not Work or self.hooks.coordinator.stop_reason is not None:
            why = "that was not entered; call it inside `with session:`"
            if self._work is not None:
                why = "that makes no further step: its training has ended; call it while not session.should_stop()"
            raise UsageError((f"run() was called on a session {why}",))
        self.before_step()
        if fetches is not self._args.fetches:
            self._args = SessionRunArgs(fetches)
        values = self._step(self._work if batch is None else _fed(self._work, batch))
        fetched = pick(fetches, values, self._table_names)
        self.on_step(self)
        self._work = self._source.following()
        return fetched

    def look(self, fetches: Fetches, batch: tuple[Any, Any]) -> Any:
        """Return the values of `batch` in the structure of `fetches`, without a step and without hooks. Blocks."""
        assert isinstance(self._work, Work), "the training has not ended"
        work = _fed(self._work, batch)
        self._source.pull(work)
        return pick(fetches, StepValues(self.step_session, self._source.compute(work)), self._table_names)

    def _step(self, work: Work) -> StepValues:
        session = self.step_session
        self.hooks.before_run(self._args)
        self._source.pull(work)
        result = self._source.compute(work)
        num_examples = num_rows(work.batch[0])
        session.fault = self._push(work, result, num_examples)
        session.num_examples, session.result, session.computed_at = num_examples, result, work.grant.global_step
        values = StepValues(session, result)
        self.hooks.after_run(values)
        if session.fault is not None and not self.hooks.coordinator.should_stop():
            raise session.fault
        return values

    def _step_source(self, built: BuiltModel) -> StepSource:
        self._gradient_fn = GradientFn(self.caller, built, self.evaluations)
        known = KnownIds(self.model.tables, built.table_features)
        kind = OneAhead if self.pipeline_depth else InTurn
        return kind(self.client, self.reader, self._call_model_fn, known)

    def _push(self, work: Work, result: StepResult, num_examples: int) -> NanLossError | NanGradientError | None:
        """Push the gradients; or return why not: then the guard among the hooks ends training, and no ps gets them."""
        session = self.step_session
        if not math.isfinite(result.loss):
            cell = self.reader.first_non_finite_cell(work.grant.records, work.batch)
            return NanLossError(result.loss, session.global_step, cell)
        try:
            session.global_step, staleness = self._source.push(work, result, num_examples)
        except NanGradientError as error:
            return error
        session.num_steps += 1
        if staleness is not None:
            session.staleness = staleness
            session.staleness_sum += staleness
        return None

    def _call_model_fn(self, work: Work) -> StepResult:
        try:
            return self._gradient_fn(
                *work.batch,
                self.step_session.variables,
                work.grant.global_step,
                self.client.rows,
                work.lookups,
                self.client.gradient_buffers,
            )
        except LabelError as error:
            raise named(error, self.reader.name_of(work.grant.records)) from error.__cause__

    def _end_training(self, *, after_others: bool) -> None:
        """Return the tickets, and wait for the end of the job, where others may make their own steps before it."""
        reason = self.hooks.coordinator.stop_reason
        assert reason is not None
        if after_others and self.num_workers:
            logger.info("the loop of the chief has ended; training continues until the loops of all workers have")
        while not isinstance(self._work, JobEnd):
            answer = self.client.stop(reason, after_others=after_others)
            if isinstance(answer, JobEnd):
                self._work = answer
