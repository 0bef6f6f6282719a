"""What an export will do: which checkpoint, and whether it becomes the best one."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psflow.flows.parameters.export import ExportParameters
from psflow.flows.planning.building import Training, build_training
from psflow.flows.planning.reading_line import shown_reading
from psflow.flows.replay.found_training import FoundTraining, Tracked, found_training, tracked
from psflow.flows.watching.summary import best_record
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord
from psflow.ps_runtime.checkpoint.selection import Selection
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.planning import plan_evaluations
from psflow.ps_runtime.model.best import Better, best_of, better, not_finite
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.tasks.exports.exported import BEST, CHOSEN, Exported, exports_of
from psflow.tasks.exports.writer import check_exportable

__all__ = ["ExportPlan", "plan_export"]


@dataclass(frozen=True)
class ExportPlan:
    """A checkpoint to be exported."""

    training: FoundTraining
    built: Training
    tracked: Tracked
    step: int
    saved_at: float
    metrics: Mapping[str, float]
    exported: Exported | None
    exporter: str
    is_best: bool
    takes_alias: bool
    passed_over: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    step: int
    saved_at: float
    metrics: Mapping[str, float]
    exported: Exported | None
    passed_over: tuple[int, ...] = ()


def plan_export(parameters: ExportParameters) -> ExportPlan:
    """Choose the checkpoint, and find out whether it can be exported; change nothing.

    Raises
    ------
    UsageError
        If there is no such checkpoint, or something is wrong with model_fn or the input.
    """
    selection = Selection.parse_one(parameters.checkpoint)
    training = found_training(parameters)
    built = build_training(training.parameters)
    check_exportable(built.estimator.model_fn, built.estimator.params)
    is_best = parameters.checkpoint.strip() == "best"
    choice = _choice(parameters, selection, training)
    if choice.exported is None:
        model = CheckpointStore(training.model_dir).manifest(choice.step).model
        kept = KeptInputs(training.model_dir)
        with shown_reading():
            plan_evaluations(built.estimator.caller, built.eval_specs[:1], model, built.estimator.check_labels, kept)
    return ExportPlan(
        training,
        built,
        tracked(training),
        choice.step,
        choice.saved_at,
        choice.metrics,
        choice.exported,
        choice.exported.exporter if choice.exported else BEST if is_best else CHOSEN,
        is_best,
        parameters.takes_alias,
        choice.passed_over,
    )


def _choice(parameters: ExportParameters, selection: Selection, training: FoundTraining) -> _Choice:
    name = training.parameters.eval.name or ""
    evaluations = [e for e in EvaluationLog(training.model_dir).read() if e.name == name]
    saved_at = CheckpointStore(training.model_dir).saved_at()
    if parameters.metric is not None and parameters.mode is not None:
        return _new_best(training, evaluations, saved_at, better(parameters.metric, parameters.mode, "--metric"))
    record = best_record(training.model_dir)
    if selection.parts == ("best",) and record is not None and os.path.isdir(record.path):
        exported = Exported(BEST, record.version, record.path, record.step, math.nan)
        return _Choice(record.step, math.nan, record.metrics, exported)
    [step] = selection.choose(training.available())
    known = [e.metrics for e in evaluations if (e.global_step, e.checkpoint_saved_at) == (step, saved_at[step])]
    exports = exports_of(training.model_dir, BEST if selection.parts == ("best",) else None)
    return _Choice(step, saved_at[step], known[-1] if known else {}, _find(exports, step, saved_at[step]))


def _find(exports: Sequence[Exported], step: int, saved_at: float) -> Exported | None:
    return next((e for e in exports if (e.step, e.saved_at) == (step, saved_at)), None)


def _new_best(
    training: FoundTraining, evaluations: Sequence[EvaluationRecord], saved_at: Mapping[int, float], compare_fn: Better
) -> _Choice:
    """Do what BestExporter would have done, over the record; among the checkpoints that can still be exported."""
    exports = exports_of(training.model_dir, BEST)
    available = {*saved_at.items(), *((e.step, e.saved_at) for e in exports)}
    ordered = sorted(evaluations, key=lambda e: e.global_step)
    left = [e for e in ordered if (e.global_step, e.checkpoint_saved_at) in available]
    best = best_of([e.metrics for e in left], compare_fn)
    if best is None:
        evaluation = training.parameters.eval.name or "eval"
        raise UsageError((f"no such checkpoint: {training.model_dir} {_none(left, evaluation, compare_fn)}",))
    chosen = left[best]
    gone = [e.global_step for e in ordered if e not in left and best_of([chosen.metrics, e.metrics], compare_fn) == 1]
    exported = _find(exports, chosen.global_step, chosen.checkpoint_saved_at)
    return _Choice(chosen.global_step, chosen.checkpoint_saved_at, chosen.metrics, exported, tuple(gone))


def _none(evaluations: Sequence[EvaluationRecord], name: str, compare_fn: Better) -> str:
    """Say why none of `evaluations` is the best."""
    if not evaluations:
        return f"has none that was evaluated as {name!r}; evaluate first: psflow evaluate --model-dir DIR"
    last = evaluations[-1]
    values = ", ".join(f"{metric} is {value}" for metric, value in not_finite(compare_fn, last.metrics).items())
    return (
        f"has none with a finite result of evaluation {name!r} (at step {last.global_step} {values}); correct the data "
        "and evaluate again: psflow evaluate --model-dir DIR --force"
    )
