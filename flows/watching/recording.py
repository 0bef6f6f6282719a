"""The MLflow run of a training flow: what it is about, and what a resumed job has done already."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from psflow.flows.parameters.resolved_config import CONFIG
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.watching.page_links import PageLinks
from psflow.flows.watching.summary import best_record
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord, measured
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.files import dump
from psflow.ps_runtime.config.keys import flat
from psflow.ps_runtime.data.splittable import KnownInput
from psflow.ps_runtime.estimator.attempt import CODE_DIGEST, Attempt
from psflow.ps_runtime.estimator.fork import FORKED_FROM
from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.redaction import public, shown_path, without_secrets
from psflow.ps_runtime.roles.events import Checkpoint, Export, RecordedEvent
from psflow.tasks.exports.exported import BEST, CHOSEN, Exported, exports_of
from psflow.tasks.tracking.code_version import code_version
from psflow.tasks.tracking.points import evaluation_event
from psflow.tasks.tracking.run import DatasetInfo
from psflow.tasks.tracking.tracker import Tracker

__all__ = ["dataset_info", "open_tracker", "put_config", "what_is_on_disk"]


def open_tracker(store: str, attempt: Attempt, parameters: TrainParameters, links: PageLinks) -> Tracker:
    """Open the MLflow run of the job in `store`: a new one, or that of its earlier attempts; say what it is about.

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
            "psflow.kind": "train",
            "psflow.attempts": str(attempt.number),
            **links.tags(),
            **code_version(_source(parameters)),
            **_digest_of(record.facts[CODE_DIGEST]),
            **_origin_of(record.facts.get(FORKED_FROM)),
        },
        datasets=[dataset_info(context, dataset, parameters) for context, dataset in attempt.plan.datasets.items()],
        registered_model=parameters.registered_model,
        better=better(parameters.best.metric, parameters.best.mode),
    )


def put_config(tracker: Tracker, parameters: TrainParameters) -> None:
    """Have the run keep the configuration of this attempt, as it may be shown."""
    tracker.put_file(CONFIG, dump(public(parameters.model_dump(mode="json"))).encode())


def _origin_of(fork: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the tags of the run of a job that began with a checkpoint of another one: it stands below that one's."""
    if fork is None:
        return {}
    tags = {"psflow.forked_from": without_secrets(str(fork["model_dir"])), "psflow.forked_at_step": str(fork["step"])}
    return tags if fork["run_id"] is None else {**tags, "mlflow.parentRunId": str(fork["run_id"])}


def _digest_of(code: str | None) -> dict[str, str]:
    return {} if code is None else {"psflow.code_digest": code}


def what_is_on_disk(attempt: Attempt) -> list[RecordedEvent]:
    """Return what earlier attempts left on disk, as the events that told of it: those of a killed flow are lost.

    It does no harm to tell the tracker of it again.
    """
    model_dir = attempt.model_dir
    store = CheckpointStore(model_dir)
    events: list[RecordedEvent] = [Checkpoint(step, store.path(step)) for step in store.steps()]
    evaluations = EvaluationLog(model_dir).read()
    events += [evaluation_event(evaluation) for evaluation in evaluations]
    best = best_record(model_dir)
    made = [export for export in exports_of(model_dir) if export.exporter != CHOSEN]  # by a person, who registers it
    events += [
        Export(export.exporter, export.step, export.version, export.path, False, _measured_for(export, evaluations))
        for export in made
        if best is None or (export.exporter, export.version) != (BEST, best.version)
    ]
    if best is not None:
        events.append(Export(BEST, best.step, best.version, best.path, True, measured(best.metrics)))
    return events


def _measured_for(export: Exported, evaluations: Sequence[EvaluationRecord]) -> dict[str, float]:
    """Return what the evaluation of the checkpoint of an export has measured, of several the one without a name."""
    made_of = export.step, export.saved_at
    found = [one for one in evaluations if (one.global_step, one.checkpoint_saved_at) == made_of]
    return measured(min(found, key=lambda one: one.name).metrics) if found else {}


def _source(parameters: TrainParameters) -> Path:
    """Return the file of the user's model_fn, or else the directory where modules of theirs are looked for."""
    name = getattr(parameters.model, "name", "")
    module = sys.modules.get(name.partition(":")[0])
    file = getattr(module, "__file__", None) if ":" in name else None
    return Path(file or parameters.code_dir or ".").absolute()


def _params(attempt: Attempt, parameters: TrainParameters) -> dict[str, str]:
    """Return what was set, flat, for everybody to read: no credentials, and model_dir as others can find it."""
    values = parameters.model_dump(mode="json") | {"model_dir": attempt.model_dir}
    return {key: str(value) for key, value in flat(public(values)) if value is not None}


def dataset_info(context: str, dataset: KnownInput, parameters: TrainParameters) -> DatasetInfo:
    """Return the input `context` of `parameters`, such as ``eval``, as MLflow shows it."""
    source = parameters.sources()[context]
    named = source.model_dump(mode="json", exclude_none=True)
    name = named.get("format") or named["name"]
    return DatasetInfo(
        name=f"{name} {named['split']}" if "split" in named else name,
        context=context,
        digest=dataset.digest(),
        schema=dataset.schema().to_facts(),
        source=_shown(named["path"]) if "path" in named else name,
    )


def _shown(path: str | list[str]) -> str:
    """Return a path, or several, as people read them."""
    return shown_path(path) if isinstance(path, str) else ", ".join(map(shown_path, path))
