"""What the MLflow store knows of jobs that run now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psflow.ps_runtime.errors import ConfigError
from psflow.tasks.tracking.child_run import KIND, MODEL_DIR
from psflow.tasks.tracking.store import mlflow_client, reason_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

__all__ = ["Figure", "RunningRun", "running_runs", "unended_runs"]

RUNS_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class Figure:
    """The last value of a metric: at which global_step, and when (Unix seconds)."""

    value: float
    step: int
    at: float


@dataclass(frozen=True)
class RunningRun:
    """A run of psflow that has not ended."""

    run_id: str
    name: str
    kind: str
    started_at: float
    tags: Mapping[str, str]
    figures: Mapping[str, Figure]


def running_runs(uri: str) -> list[RunningRun]:
    """Return the runs of psflow in the store `uri` that are not said to have ended, the newest first.

    Raises
    ------
    ConfigError
        If the store does not answer.
    """
    try:
        runs = unended_runs(mlflow_client(uri), MODEL_DIR)
    except Exception as error:  # each kind of store has errors of its own
        raise ConfigError((f"cannot list the running runs of the MLflow store: {reason_of(error)}",)) from None
    return [_running(run) for run in runs]


def unended_runs(client: MlflowClient, tag: str) -> list[Run]:
    """Return the runs of all experiments that are not said to have ended and have the tag `tag`, the newest first."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    words = f"attributes.status = 'RUNNING' and tags.`{tag}` LIKE '%'"
    found: list[Run] = []
    token = None
    while True:
        page = client.search_runs(experiments, words, max_results=RUNS_PER_PAGE, page_token=token)
        found += page
        if not (token := page.token):
            return found


def _running(run: Run) -> RunningRun:
    return RunningRun(
        run_id=run.info.run_id,
        name=run.info.run_name,
        kind=run.data.tags.get(KIND, "run"),
        started_at=run.info.start_time / 1000,
        tags=run.data.tags,
        figures=dict(_figures(run)),
    )


def _figures(run: Run) -> Iterator[tuple[str, Figure]]:
    for metric in run.data.to_proto().metrics:  # of the entity only values are public
        yield metric.key, Figure(metric.value, metric.step, metric.timestamp / 1000)
