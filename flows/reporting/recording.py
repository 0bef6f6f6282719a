"""MLflow run of a training flow: its description, and its end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psflow.flows.parameters.configuration import CONFIG
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.reporting.artifacts import PageLinks
from psflow.flows.stopping.interrupts import InterruptedRunError
from psflow.ps_runtime.config.files import dump, flat
from psflow.ps_runtime.data.splittable import KnownInput
from psflow.ps_runtime.estimator.attempt import CODE_DIGEST, Attempt
from psflow.ps_runtime.estimator.model_dir import FORKED_FROM
from psflow.ps_runtime.model.best import better
from psflow.ps_runtime.redaction import public, shown_path, without_secrets
from psflow.tasks.tracking.context import code_version
from psflow.tasks.tracking.run import DatasetInfo
from psflow.tasks.tracking.tracker import Tracker

KILLED_SECS = 4.0
FAILED_SECS = 5.0
"""Timeout for the rest of the writes to MLflow after an interruption."""


@contextmanager
def closed_on_error(tracker: Tracker) -> Iterator[Tracker]:
    """Give `tracker`; an exception in the block ends its run as KILLED after an interruption, else as FAILED."""
    try:
        yield tracker
    except (InterruptedRunError, KeyboardInterrupt):
        tracker.close("KILLED", timeout_secs=KILLED_SECS)
        raise
    except BaseException:
        tracker.close("FAILED", timeout_secs=FAILED_SECS)
        raise


def open_tracker(store: str, attempt: Attempt, parameters: TrainParameters, links: PageLinks) -> Tracker:
    """Open the MLflow run of the job in `store`, new or of its earlier attempts, and describe it.

    Raises ConfigError if the MLflow store does not answer, or does not have the run.
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
    """Store the configuration of this attempt in the run, without credentials."""
    tracker.put_file(CONFIG, dump(public(parameters.model_dump(mode="json"))).encode())


def _origin_of(fork: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the tags that put the run of a forked job below that of its parent."""
    if fork is None:
        return {}
    tags = {"psflow.forked_from": without_secrets(str(fork["model_dir"])), "psflow.forked_at_step": str(fork["step"])}
    return tags if fork["run_id"] is None else {**tags, "mlflow.parentRunId": str(fork["run_id"])}


def _digest_of(code: str | None) -> dict[str, str]:
    return {} if code is None else {"psflow.code_digest": code}


def _source(parameters: TrainParameters) -> Path:
    """Return the file of the user's model_fn, or else the directory of the user's modules."""
    name = getattr(parameters.model, "name", "")
    module = sys.modules.get(name.partition(":")[0])
    file = getattr(module, "__file__", None) if ":" in name else None
    return Path(file or parameters.code_dir or ".").absolute()


def _params(attempt: Attempt, parameters: TrainParameters) -> dict[str, str]:
    """Return the configuration, flat and without credentials, with an absolute model_dir."""
    values = parameters.model_dump(mode="json") | {"model_dir": attempt.model_dir}
    return {key: str(value) for key, value in flat(public(values)) if value is not None}


def dataset_info(context: str, dataset: KnownInput, parameters: TrainParameters) -> DatasetInfo:
    """Return the MLflow data set of the input `context` of `parameters`, such as ``eval``."""
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
    """Format a path, or several, for display."""
    return shown_path(path) if isinstance(path, str) else ", ".join(map(shown_path, path))
