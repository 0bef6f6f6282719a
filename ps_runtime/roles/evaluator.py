"""Runs the evaluator: evaluates every checkpoint against each EvalSpec, runs the exporters, and ends after training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import (
    EvaluationLog,
    EvaluationRecord,
    FinishedMarker,
    measured,
    read_finished,
)
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.checkpoints import WatchingClient
from psflow.ps_runtime.client.shard_client import Connect, Identity, ShardClient
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CheckpointError, NoBestError
from psflow.ps_runtime.model.best import best_of, not_finite
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import OpenedEvaluation, read_values
from psflow.ps_runtime.model.export.bundle import ExportBundle, ModelWriter
from psflow.ps_runtime.model.export.exporters import BestExporter
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.training import input_names
from psflow.ps_runtime.protocol.message import Purpose
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import Evaluation, Export
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.role_metrics import RoleSample

SLICE_SECS = 0.25
LOOK_SECS = 5.0
"""Between two checks that its model_dir still exists."""


def run_evaluator(
    job: JobSpec, context: RoleContext, connect_functions: Sequence[Connect], *, only_final: bool = False
) -> dict[str, Any]:
    """Evaluate checkpoints until training is over and the final one is done; return the role's report.

    With `only_final` no other one is evaluated.

    Raises
    ------
    NoBestError
        At the end, if an exporter needs the best checkpoint and no evaluation of the job has finite metrics.
    """
    assert job.eval_specs
    identity = Identity(job.job_id, job.token, job.model.digest, str(context.role), Purpose.WATCH)
    shard = ShardClient(
        connect_functions[0], identity, context.check, reconnect_secs=0.0
    )  # a role that has left the job does not return
    with closing(WatchingClient(shard, job.config.session_creation_timeout_secs)) as watching:
        evaluator = _Evaluator(job, context)
        context.watch(lambda: RoleSample(evaluator.newest_seen))
        _evaluate_all(evaluator, watching, context, only_final=only_final)
        evaluator.check_best()
        return context.report(watching.transport, {"evaluated_steps": evaluator.evaluated_steps})


def _evaluate_all(evaluator: _Evaluator, watching: WatchingClient, context: RoleContext, *, only_final: bool) -> None:
    is_over, look = False, Deadline(LOOK_SECS)
    while not is_over:
        context.check()
        if look.has_passed:
            context.fence()  # a lost model_dir has no checkpoints, and the evaluator would wait for some
            look = Deadline(LOOK_SECS)
        pending = evaluator.pending()
        finished = evaluator.finished()  # read after the checkpoints: the marker is there before the final one
        final_step = None if finished is None else finished.final_step
        if only_final:
            pending = {step: saved_at for step, saved_at in pending.items() if step == final_step}
        evaluator.evaluate_due(pending, final_step)
        is_over = final_step is not None and evaluator.has_done(final_step)
        if not is_over and not watching.wait(evaluator.newest_seen, SLICE_SECS):
            time.sleep(SLICE_SECS)  # ps-0 is gone: the files decide


class _ScheduledEvaluation:
    """One EvalSpec: its next evaluation, and its past ones."""

    def __init__(self, opened: OpenedEvaluation, done: dict[int, float]) -> None:
        self.opened = opened
        self.done = done
        """Step and ``saved_at`` of each recorded checkpoint."""
        self.next_time = time.monotonic() + opened.spec.start_delay_secs


class _Evaluator:
    """Evaluates the checkpoints of one job."""

    def __init__(self, job: JobSpec, context: RoleContext) -> None:
        self._job = job
        self._context = context
        self._store = CheckpointStore(job.model_dir, fence=context.fence)
        self._log = EvaluationLog(job.model_dir, context.fence)
        assert job.model.schema is not None  # which the plan of a job sets
        self._schema = job.model.schema
        self._caller = ModelCaller(job.model_fn, job.params, job.config, self._schema)
        known, kept = self._log.by_name(), KeptInputs(job.model_dir)
        self._scheduled = [
            _ScheduledEvaluation(
                OpenedEvaluation(self._caller, spec, self._schema, context.check, kept.of_flow(name)),
                known.get(spec.name or "", {}),
            )
            for name, spec in zip(input_names(job.eval_specs), job.eval_specs, strict=True)
        ]
        self.evaluated_steps: list[int] = []
        self.newest_seen = -1
        if any(spec.all_exporters for spec in job.eval_specs) and (warm_up := getattr(job.writer, "warm_up", None)):
            warm_up()

    def finished(self) -> FinishedMarker | None:
        """Return the mark that the chief of this attempt sets at the end of training; None before that."""
        return read_finished(self._job.model_dir)

    def has_done(self, final_step: int) -> bool:
        """Return whether the final checkpoint, if there is to be one, is evaluated against each EvalSpec."""
        if not self._job.config.saves_checkpoints:
            return True
        saved_at = self._store.saved_at().get(final_step)  # an earlier checkpoint of that step does not count
        return saved_at is not None and all(scheduled.done.get(final_step) == saved_at for scheduled in self._scheduled)

    def pending(self) -> dict[int, float]:
        """Return step and ``saved_at`` of the checkpoints that some EvalSpec has not evaluated yet, oldest first."""
        saved = self._store.saved_at()
        self.newest_seen = max(saved, default=self.newest_seen)
        return {
            step: saved_at
            for step, saved_at in saved.items()
            if any(scheduled.done.get(step) != saved_at for scheduled in self._scheduled)
        }

    def evaluate_due(self, pending: Mapping[int, float], final_step: int | None) -> None:
        """Evaluate `pending` against each EvalSpec that is due; once training is over, against all of them."""
        now = time.monotonic()
        due = [scheduled for scheduled in self._scheduled if final_step is not None or now >= scheduled.next_time]
        for step, saved_at in pending.items():
            wanted = [scheduled for scheduled in due if scheduled.done.get(step) != saved_at]
            if wanted:
                self._context.check()
                try:
                    self._evaluate(step, wanted, is_final=step == final_step)
                except CheckpointError:
                    # as this evaluator came, the chief kept no checkpoint for it yet
                    if not self._job.evaluator_may_be_missing or step in self._store.steps():
                        raise
                    continue
                for scheduled in wanted:
                    scheduled.next_time = now + scheduled.opened.spec.throttle_secs

    def check_best(self) -> None:
        """Raise NoBestError if no evaluation of the job, earlier attempts included, could be the best."""
        for scheduled in self._scheduled:
            opened = scheduled.opened
            choosing = [exporter for exporter in opened.spec.all_exporters if isinstance(exporter, BestExporter)]
            lacking = [exporter for exporter in choosing if exporter.best(self._job.model_dir) is None]
            results = [record.metrics for record in self._log.read() if record.name == opened.name] if lacking else []
            for exporter in lacking if results else ():
                if best_of(results, exporter.compare_fn) is None:
                    metrics = not_finite(exporter.compare_fn, results[-1])
                    cell = opened.first_non_finite_cell()
                    raise NoBestError(opened.name or "eval", metrics, len(results), cell)

    def _evaluate(self, step: int, wanted: Sequence[_ScheduledEvaluation], *, is_final: bool) -> None:
        """Evaluate one checkpoint: record the results, run the exporters, send the events."""
        with CheckpointReader.pinned(self._store, step, str(self._context.role)) as reader:
            values = read_values(reader)
            saved_at = reader.manifest.saved_at
        for scheduled in wanted:
            self._measure(scheduled, step, saved_at, values, is_final=is_final)
        self.evaluated_steps.append(step)

    def _measure(
        self, scheduled: _ScheduledEvaluation, step: int, saved_at: float, values: ModelValues, *, is_final: bool
    ) -> None:
        opened = scheduled.opened
        started = time.monotonic()
        metrics = opened.measure(values, step)
        secs = round(time.monotonic() - started, 6)
        # before the export, of which the first may wait for the imports of its writer
        self._context.emit(Evaluation(step, measured(metrics), saved_at, opened.spec.name, secs))
        if self._job.writer is not None and opened.spec.all_exporters:
            self._context.fence()
            self._export(self._job.writer, opened, step, saved_at, values, metrics, is_final=is_final)
        self._log.add(EvaluationRecord(opened.name, step, saved_at, metrics, time.time(), opened.digest))
        scheduled.done[step] = saved_at

    def _export(
        self,
        writer: ModelWriter,
        opened: OpenedEvaluation,
        step: int,
        saved_at: float,
        values: ModelValues,
        metrics: Mapping[str, float],
        *,
        is_final: bool,
    ) -> None:
        bundle = ExportBundle.of(
            self._caller,
            values,
            step,
            opened.example,
            name=opened.spec.name or "model",
            metrics=dict(metrics),
            saved_at=saved_at,
            schema=self._schema,
        )
        for exporter in opened.spec.all_exporters:
            result = exporter.export(
                self._job.model_dir, bundle, writer, is_the_final_export=is_final, fence=self._context.fence
            )
            if result is not None:
                self._context.emit(
                    Export(
                        result.exporter,
                        result.global_step,
                        result.version,
                        result.path,
                        result.is_best,
                        measured(result.metrics),
                    )
                )
