"""Plans an export: its checkpoint, and whether it becomes the best one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psflow.flows.parameters.configuration import PipelineParameters, is_conf_text
from psflow.flows.parameters.stages import ExportChoice, ExportParameters
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import Training, build_training
from psflow.flows.planning.training_plan import shown_reading
from psflow.flows.replay.plan import FoundTraining, Tracked, found_training, plan_replay, tracked
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord
from psflow.ps_runtime.checkpoint.selection import Selection
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.files import Origin, Settings
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.planning import metric_names, plan_evaluations
from psflow.ps_runtime.model.best import Better, best_of, better, not_finite
from psflow.ps_runtime.model.export.directory import is_exported
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.variables import ModelSpec
from psflow.tasks.exports.exported import CHOSEN, Exported, best_record, exports_of
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.tracking.models import BEST


@dataclass(frozen=True)
class ExportPlan:
    """A checkpoint to export."""

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
    """Choose the checkpoint, and check that it can be exported; changes nothing.

    Raises UsageError if there is no such checkpoint, or something is wrong with model_fn or the input.
    """
    selection = Selection.parse_one(parameters.checkpoint)
    training = found_training(parameters)
    built = build_training(training.parameters)
    MlflowModelWriter().check(built.estimator.model_fn, built.estimator.params)
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
    if selection.parts == ("best",) and record is not None and is_exported(record.path):
        of = saved_at.get(record.step, math.nan)
        exported = Exported(BEST, record.version, record.path, record.step, of)
        return _Choice(record.step, of, record.metrics, exported)
    [step] = selection.choose(training.available())
    known = [e.metrics for e in evaluations if (e.global_step, e.checkpoint_saved_at) == (step, saved_at[step])]
    exports = exports_of(training.model_dir, BEST if selection.parts == ("best",) else None)
    return _Choice(step, saved_at[step], known[-1] if known else {}, _find(exports, step, saved_at[step]))


def _find(exports: Sequence[Exported], step: int, saved_at: float) -> Exported | None:
    return next((e for e in exports if (e.step, e.saved_at) == (step, saved_at)), None)


def _new_best(
    training: FoundTraining, evaluations: Sequence[EvaluationRecord], saved_at: Mapping[int, float], compare_fn: Better
) -> _Choice:
    """Choose the best recorded checkpoint that can still be exported, as BestExporter does."""
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
    """Explain why none of `evaluations` is the best."""
    if not evaluations:
        return f"has none with an evaluation {name!r}; evaluate first: psflow evaluate --model-dir DIR"
    last = evaluations[-1]
    values = ", ".join(f"{metric} is {value}" for metric, value in not_finite(compare_fn, last.metrics).items())
    return (
        f"has none with a finite result of evaluation {name!r} (at step {last.global_step} {values}); correct the data "
        "and evaluate again: psflow evaluate --model-dir DIR --force"
    )


OVERRIDES = "pipeline.evaluate.overrides"
METRIC = "pipeline.export.metric"


def check_after_training(parameters: PipelineParameters, training: TrainParameters, model: ModelSpec) -> None:
    """Check the stages that follow a planned training.

    Raises UsageError if an override is wrong or changes the model, or the evaluation has no such metric.
    """
    stages = parameters.pipeline
    if "evaluate" in stages.chosen and stages.evaluate.overrides:
        before = Settings(training.model_dump(mode="json"))
        settings = before.overridden(stages.evaluate.overrides, Origin(OVERRIDES), is_conf_text)
        built = build_training(parse_parameters(settings.values, settings.origins))
        estimator = built.estimator
        kept = KeptInputs(estimator.model_dir)
        plan_evaluations(estimator.caller, built.eval_specs, model, estimator.check_labels, kept)
    if "export" in stages.chosen:
        _check_metric(stages.export, training, model.schema)


def check_without_training(parameters: PipelineParameters) -> None:
    """Check the stages of a run without training.

    Raises UsageError if there is no such training or checkpoint, or model_fn, inputs or metric are wrong.
    """
    chosen, export = parameters.pipeline.chosen, parameters.export()
    if "evaluate" in chosen:
        plan_replay(parameters.evaluation())
    if "export" in chosen:
        training = found_training(export)
        _check_metric(export, training.parameters, _schema(training.model_dir))
        if export.metric is None or "evaluate" not in chosen:  # else a checkpoint that is evaluated now may be the best
            plan_export(export)


def _schema(model_dir: str) -> InputSchema | None:
    """Return the input schema of the checkpoints of a training; None if there are none, which is reported elsewhere."""
    store = CheckpointStore(model_dir)
    latest = store.latest()
    return None if latest is None else store.manifest(latest).model.schema


def _check_metric(export: ExportChoice, training: TrainParameters, schema: InputSchema | None) -> None:
    """Refuse a metric that the evaluation lacks; calls model_fn once."""
    if export.metric is not None and export.mode is not None:
        built = build_training(training)
        kept = KeptInputs(built.estimator.model_dir)
        names = metric_names(built.estimator.caller, built.eval_specs[0], schema, kept)
        better(export.metric, export.mode, METRIC).check(names)
