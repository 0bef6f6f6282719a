"""What can be known of an evaluation and of an export ahead of the stages that they follow; nothing has begun yet."""

from __future__ import annotations

from psflow.flows.parameters.configuration import is_conf_text
from psflow.flows.parameters.export import ExportChoice
from psflow.flows.parameters.pipeline import PipelineParameters
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.flows.replay.export_plan import plan_export
from psflow.flows.replay.found_training import found_training
from psflow.flows.replay.plan import plan_replay
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.files import Origin, Settings
from psflow.ps_runtime.estimator.planning import metric_names, plan_evaluations
from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.variables import ModelSpec

__all__ = ["check_after_training", "check_without_training"]

OVERRIDES = "pipeline.evaluate.overrides"
METRIC = "pipeline.export.metric"


def check_after_training(parameters: PipelineParameters, training: TrainParameters, model: ModelSpec) -> None:
    """Look at the stages that follow a training that has been planned.

    Raises
    ------
    UsageError
        If an override is wrong or another model, or the metric is none of the evaluation.
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
    """Look at the stages that follow no training in this run, as they will themselves.

    Raises
    ------
    UsageError
        If there is no such training or checkpoint, or whatever is wrong with model_fn, inputs or metric.
    """
    chosen, export = parameters.pipeline.chosen, parameters.export()
    if "evaluate" in chosen:
        plan_replay(parameters.evaluation())
    if "export" in chosen:
        training = found_training(export)
        _check_metric(export, training.parameters, _schema(training.model_dir))
        if export.metric is None or "evaluate" not in chosen:  # else what is evaluated now may be the best one
            plan_export(export)


def _schema(model_dir: str) -> InputSchema | None:
    """Return what the checkpoints of a training read; None if there are none, which is reported elsewhere."""
    store = CheckpointStore(model_dir)
    latest = store.latest()
    return None if latest is None else store.manifest(latest).model.schema


def _check_metric(export: ExportChoice, training: TrainParameters, schema: InputSchema | None) -> None:
    """Refuse a metric that the evaluation does not have; model_fn is called once."""
    if export.metric is not None and export.mode is not None:
        built = build_training(training)
        kept = KeptInputs(built.estimator.model_dir)
        names = metric_names(built.estimator.caller, built.eval_specs[0], schema, kept)
        better(export.metric, export.mode, METRIC).check(names)
