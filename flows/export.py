"""Export flow: registers a checkpoint as an MLflow model, which may become the best one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from psflow.flows.invocation import invoke, invoked
from psflow.flows.parameters.stages import ExportParameters
from psflow.flows.prefect_runs import public_flow
from psflow.flows.replay.export_plan import ExportPlan, plan_export
from psflow.flows.reporting.summary import gone
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.model.best import BestRecord, better
from psflow.ps_runtime.model.calls.mode_reads import ModeReads
from psflow.ps_runtime.model.evaluation import batches_of, first_rows, read_values
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.model.export.directory import ExportDirectory, is_exported
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.tasks.exports.exported import Exported, Registration, add_export, moved_best
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.tracking.child_run import open_child_run
from psflow.tasks.tracking.models import BEST, BestModel


def export(parameters: ExportParameters) -> dict[str, Any]:
    """Run the export flow in this process, with a local Prefect server if none is named.

    Returns
    -------
    dict
        ``model_uri, version, registered_model, alias, step, metrics, path, is_new, run_id, passed_over, wall_secs``.

    Raises
    ------
    UsageError
        If the request is invalid; nothing was exported then.
    """
    return invoke(export_flow, parameters, prepared)


@contextmanager
def prepared(parameters: ExportParameters) -> Iterator[ExportPlan]:
    """Choose the checkpoint, and check that it can be exported; changes nothing.

    Raises UsageError if there is no such checkpoint, or something is wrong with model_fn or the input.
    """
    yield plan_export(parameters)


def _flow_run_name() -> str:
    parameters: ExportParameters = flow_run.parameters["parameters"]
    by = "" if parameters.metric is None else f" by {parameters.metric} {parameters.mode}"
    return f"export {parameters.title} {parameters.checkpoint}{by}"


@public_flow(name="export", flow_run_name=_flow_run_name)
def export_flow(parameters: ExportParameters) -> dict[str, Any]:
    """Export a checkpoint as an MLflow model, and register it; reuses an existing export.

    Parameters
    ----------
    parameters : ExportParameters
        Which checkpoint to export.

    Returns
    -------
    dict
        As `export` does.
    """
    with invoked(parameters, prepared) as invocation:
        plan: ExportPlan = invocation.prepared
        if plan.passed_over:
            get_run_logger().warning("%s; exporting step %d, the best that remains", gone(plan.passed_over), plan.step)
        facts = export_checkpoint(plan)
        return facts | {"wall_secs": round(time.monotonic() - invocation.started, 3)}


@task(name="export checkpoint", cache_policy=NO_CACHE, persist_result=False)
def export_checkpoint(plan: ExportPlan) -> dict[str, Any]:
    """Write and register the export of `plan`, and move the mark of the best one.

    Raises ConfigError if MLflow refuses it. The best one is then unchanged.
    """
    model_dir, name = plan.training.model_dir, plan.training.parameters.registered_model
    run_id = _run_id(plan)
    registration = Registration(plan.tracked.store, run_id, name)
    files = FileStore(model_dir)
    with ExportDirectory.of_exporter(files, plan.exporter) as directory:
        exported, is_new = plan.exported, False
        if exported is None or not is_exported(exported.path):
            before = directory.versions()
            exported = add_export(directory, lambda path: _write(path, plan), plan.step, plan.saved_at)
            is_new = exported.version not in before
        registered = registration.register(exported, plan.metrics)
        has_alias = plan.is_best and _move(directory, registration, exported, registered, plan)
        if is_new and plan.is_best:
            directory.keep(plan.training.parameters.best.exports_to_keep, exported.version)
    return {
        "model_uri": registered.model_uri,
        "version": registered.version,
        "registered_model": name,
        "alias": BEST if has_alias else None,
        "step": plan.step,
        "metrics": {key: value for key, value in plan.metrics.items() if key != "global_step"},
        "path": exported.path,
        "is_new": is_new,
        "run_id": run_id,
        "passed_over": list(plan.passed_over),
    }


def _move(
    directory: ExportDirectory, registration: Registration, exported: Exported, registered: BestModel, plan: ExportPlan
) -> bool:
    """Move ``best.json`` and the alias, both or neither; return whether the export has the alias."""
    assert registered.version is not None
    record = BestRecord(plan.step, dict(plan.metrics), exported.version, exported.path)
    with moved_best(directory, record):
        if plan.takes_alias:
            registration.move_alias(registered.version)
            return True
        best = plan.training.parameters.best
        return registration.offer_alias(registered.version, plan.step, plan.metrics, better(best.metric, best.mode))


def _run_id(plan: ExportPlan) -> str:
    """Return the run that owns the exported model: that of the training, or a new one."""
    if plan.tracked.run is not None:
        return plan.tracked.run.run_id
    experiment = plan.training.parameters.experiment
    tracker = open_child_run(
        plan.tracked.store,
        kind="export",
        experiment=experiment,
        model_dir=plan.training.model_dir,
        parent=None,
        run_name=f"export {experiment}",
        tags={"psflow.prefect_flow_run": str(flow_run.id)},
    )
    tracker.close()
    return tracker.run_id


def _write(path: str, plan: ExportPlan) -> None:
    """Read the checkpoint, and write the model to `path`."""
    estimator, spec = plan.built.estimator, plan.built.eval_specs[0]
    with CheckpointReader.pinned(CheckpointStore(plan.training.model_dir), plan.step, "export") as reader:
        values, schema = read_values(reader), reader.manifest.model.schema
    assert schema is not None  # set by the plan of the training
    caller, modes = estimator.caller.reading(schema), (ModeKeys.EVAL, ModeKeys.PREDICT)
    opened = open_input(
        spec.input_fn,
        mode=ModeKeys.EVAL,
        params=estimator.params,
        config=estimator.config,
        non_finite=spec.non_finite,
        enforcement=Enforcement(schema, "the eval input", reads=ModeReads(caller, modes, values)),
        kept=KeptInputs(plan.training.model_dir).earlier("eval"),
    )
    features, _ = next(iter(batches_of(opened)))
    bundle = ExportBundle.of(
        caller,
        values,
        plan.step,
        first_rows(features),
        name=spec.name or "model",
        metrics=dict(plan.metrics),
        saved_at=plan.saved_at,
        schema=schema,
    )
    MlflowModelWriter().write(path, bundle)
