"""The evaluator: it evaluates every checkpoint, lets the exporters choose, and leaves once training is over."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from ps_runtime.checkpoint.reader import CheckpointReader
from ps_runtime.checkpoint.records import Evaluation, EvaluationLog, Finished, read_finished
from ps_runtime.checkpoint.store import CheckpointStore
from ps_runtime.client.link import Dial, Identity, Link
from ps_runtime.client.watching import WatchingClient
from ps_runtime.data.dataset import Dataset
from ps_runtime.data.input_pipeline import open_input
from ps_runtime.model.caller import ModelCaller
from ps_runtime.model.evaluation import batches_of, evaluate, predict_batch, read_values
from ps_runtime.model.exporters import ExportBundle
from ps_runtime.model.spec import ModeKeys
from ps_runtime.model.training import EvalSpec
from ps_runtime.model.values import ModelValues
from ps_runtime.roles.context import RoleContext
from ps_runtime.roles.job_spec import JobSpec
from ps_runtime.server.peers import Purpose

__all__ = ["run_evaluator"]

SLICE_SECS = 0.25
EXAMPLE_ROWS = 3
"""Rows of the input that an export shows as its example."""


def run_evaluator(job: JobSpec, context: RoleContext, dials: Sequence[Dial]) -> dict[str, Any]:
    """Evaluate checkpoints until training is over and the final one is done; return the role's report.

    Parameters
    ----------
    job : JobSpec
    context : RoleContext
    dials : sequence of callable
        How to reach each ps; only ps-0 is asked.
    """
    assert job.eval_spec is not None
    identity = Identity(job.job_id, job.token, job.model.digest, str(context.role), Purpose.WATCH)
    link = Link(dials[0], identity, context.check, reconnect_secs=0.0)  # who has left the job does not come back
    with closing(WatchingClient(link, job.config.session_creation_timeout_secs)) as watching:
        evaluator = _Evaluator(job, job.eval_spec, context)
        _evaluate_all(evaluator, watching, job.eval_spec, context)
        return context.report(watching.transport, {"evaluated_steps": evaluator.evaluated_steps})


def _evaluate_all(evaluator: _Evaluator, watching: WatchingClient, eval_spec: EvalSpec, context: RoleContext) -> None:
    next_time = time.monotonic() + eval_spec.start_delay_secs
    is_over = False
    while not is_over:
        context.check()
        pending = evaluator.pending()
        finished = evaluator.finished()  # read after the checkpoints: the mark is there before the final one
        if finished is not None or time.monotonic() >= next_time:
            started = time.monotonic()
            for step in pending:
                context.check()
                evaluator.evaluate(step, is_final=finished is not None and step == finished.final_step)
                next_time = started + eval_spec.throttle_secs
        is_over = finished is not None and evaluator.has_done(finished.final_step)
        if not is_over and not watching.wait(evaluator.newest_seen, SLICE_SECS):
            time.sleep(SLICE_SECS)  # ps-0 is gone: what is on disk decides


class _Evaluator:
    """Evaluates single checkpoints of one job."""

    def __init__(self, job: JobSpec, eval_spec: EvalSpec, context: RoleContext) -> None:
        self._job = job
        self._spec = eval_spec
        self._context = context
        self._store = CheckpointStore(job.model_dir)
        self._log = EvaluationLog(job.model_dir)
        self._caller = ModelCaller(job.model_fn, job.params, job.config)
        self._name = eval_spec.name or ""
        self._done = self._log.checkpoints(self._name)
        self._dataset: Dataset | None = None
        self._example: Any = None
        """A few rows of the features, once a batch was read."""
        self.evaluated_steps: list[int] = []
        self.newest_seen = -1

    def finished(self) -> Finished | None:
        """Return the mark that this attempt's chief put at the end of training; None before that."""
        return read_finished(self._job.model_dir)

    def has_done(self, final_step: int) -> bool:
        """Return whether the final checkpoint is evaluated, if there is to be one."""
        if not self._job.config.saves_checkpoints:
            return True
        saved_at = self._store.saved_at().get(final_step)  # an evaluation of an earlier one of that step does not count
        return saved_at is not None and self._done.get(final_step) == saved_at

    def pending(self) -> list[int]:
        """Return the checkpoints that are not evaluated yet, oldest first."""
        saved = self._store.saved_at()
        self.newest_seen = max(saved, default=self.newest_seen)
        return [step for step, saved_at in saved.items() if self._done.get(step) != saved_at]

    def evaluate(self, step: int, *, is_final: bool) -> None:
        """Evaluate one checkpoint, write the result down, let the exporters choose, tell of it."""
        started = time.monotonic()
        with CheckpointReader.pinned(self._store, step, str(self._context.role)) as reader:
            values = read_values(reader)
            saved_at = reader.manifest.saved_at
        metrics = evaluate(self._caller, self._batches(), values, step, self._spec.steps)
        secs = round(time.monotonic() - started, 6)
        self._export(step, values, metrics, is_final=is_final)
        self._log.append(Evaluation(self._name, step, saved_at, metrics, time.time()))
        self._done[step] = saved_at
        self.evaluated_steps.append(step)
        self._context.emit("evaluation", step=step, name=self._spec.name, metrics=_finite(metrics), secs=secs)

    def _batches(self) -> Iterator[Any]:
        """Read the input from its start; look up before each batch, as an evaluation may take long."""
        for features, labels in batches_of(self._open()):
            self._context.check()
            if self._example is None:
                self._example = _first_rows(features)
            yield features, labels

    def _open(self) -> Dataset | Iterator[Any]:
        """Open the input: a data set once, anything else each time that it is read."""
        if self._dataset is not None:
            return self._dataset
        opened = open_input(self._spec.input_fn, mode=ModeKeys.EVAL, params=self._job.params)
        self._dataset = opened if isinstance(opened, Dataset) else None
        return opened

    def _export(self, step: int, values: ModelValues, metrics: Mapping[str, float], *, is_final: bool) -> None:
        if self._job.writer is None or not self._spec.all_exporters:
            return
        bundle = ExportBundle(
            name=self._spec.name or "model",
            global_step=step,
            values=values,
            model_fn=self._job.model_fn,
            params=dict(self._job.params),
            features=self._example,
            predictions=predict_batch(self._caller, self._example, values, step),
            metrics=dict(metrics),
        )
        for exporter in self._spec.all_exporters:
            result = exporter.export(self._job.model_dir, bundle, self._job.writer, is_the_final_export=is_final)
            if result is not None:
                self._context.emit(
                    "export",
                    exporter=result.exporter,
                    step=result.global_step,
                    version=result.version,
                    path=result.path,
                    best=result.is_best,
                    metrics=_finite(metrics),
                )


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return what a tracking store can plot."""
    return {name: value for name, value in metrics.items() if math.isfinite(value) and name != "global_step"}


def _first_rows(features: Any) -> Any:
    if isinstance(features, Mapping):
        return {name: _first_rows(value) for name, value in features.items()}
    return np.asarray(features)[:EXAMPLE_ROWS]
