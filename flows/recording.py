"""The MLflow run of a training flow: what it is about, and what a resumed job has done already."""

from __future__ import annotations

import time

from prefect.runtime import flow_run

from flows.parameters import TrainParameters
from flows.summary import best_record
from ps_runtime.checkpoint.records import EvaluationLog
from ps_runtime.checkpoint.store import CheckpointStore
from ps_runtime.config.keys import flat
from ps_runtime.data.dataset import Dataset
from ps_runtime.data.files import shown_path, without_secrets
from ps_runtime.estimator.attempt import Attempt
from tasks.tracking.run import DatasetInfo
from tasks.tracking.tracker import Tracker

__all__ = ["dataset_info", "open_tracker", "tell_what_is_on_disk"]


def open_tracker(store: str, attempt: Attempt, parameters: TrainParameters) -> Tracker:
    """Open the MLflow run of the job in `store`: a new one, or that of its earlier attempts.

    Raises
    ------
    ConfigError
        If the MLflow store does not answer, or does not have the run.
    """
    record = attempt.record
    return Tracker.open(
        store,
        experiment=parameters.experiment,
        run_name=f"{parameters.experiment}-{record.job_id[:6]}",
        run_id=record.run_id,
        params=_params(attempt, parameters),
        tags={
            "psflow.job_id": record.job_id,
            "psflow.model_dir": without_secrets(attempt.model_dir),
            "psflow.attempts": str(attempt.number),
            "psflow.prefect_flow_run": str(flow_run.id),
        },
        datasets=[dataset_info(context, dataset, parameters) for context, dataset in attempt.plan.datasets.items()],
        registered_model=parameters.registered_model,
    )


def tell_what_is_on_disk(attempt: Attempt, tracker: Tracker) -> None:
    """Tell the tracker what earlier attempts left on disk, because the events of a killed flow are lost.

    What it was told before does no harm.
    """
    model_dir = attempt.model_dir
    store = CheckpointStore(model_dir)
    for step in store.steps():
        tracker.handle({"kind": "checkpoint", "step": step, "path": store.path(step), "time": time.time()})
    for evaluation in EvaluationLog(model_dir).read():
        tracker.handle(
            {
                "kind": "evaluation",
                "step": evaluation.global_step,
                "name": evaluation.name or None,
                "metrics": dict(evaluation.metrics),
                "time": evaluation.evaluated_at,
            }
        )
    best = best_record(model_dir)
    if best is not None:
        tracker.handle(
            {
                "kind": "export",
                "exporter": "best",
                "step": best.step,
                "version": best.version,
                "path": best.path,
                "metrics": dict(best.metrics),
                "best": True,
                "time": time.time(),
            }
        )


def _params(attempt: Attempt, parameters: TrainParameters) -> dict[str, str]:
    """Return what was set, flat, for everybody to read: no credentials, and model_dir as others can find it."""
    values = parameters.model_dump(mode="json") | {"model_dir": attempt.model_dir}
    return {key: without_secrets(str(value)) for key, value in flat(values) if value is not None}


def dataset_info(context: str, dataset: Dataset, parameters: TrainParameters) -> DatasetInfo:
    """Return the input `context` of `parameters`, such as ``eval``, as MLflow shows it."""
    source = parameters.sources()[context]
    named = source.model_dump(mode="json", exclude_none=True)
    name = named.get("format") or named["name"]
    return DatasetInfo(
        name=f"{name} {named['split']}" if "split" in named else name,
        context=context,
        digest=dataset.digest(),
        schema=dataset.schema(),
        source=shown_path(named["path"]) if "path" in named else name,
    )
