"""Child runs of trainings, with later results of their checkpoints, and running runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psflow.ps_runtime.checkpoint.records import EvaluationRecord
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.owners import JOB_ID, KIND, MODEL_DIR
from psflow.tasks.tracking.models import RecordedModels
from psflow.tasks.tracking.points import Points, evaluation_event
from psflow.tasks.tracking.run import DatasetInfo, open_run
from psflow.tasks.tracking.store import mlflow_client, reason_of, retried, run_page
from psflow.tasks.tracking.tracker import Tracker

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PARENT = "mlflow.parentRunId"


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """MLflow run of a training."""

    run_id: str
    experiment: str
    model_dir: str
    job_id: str | None = None


def find_training_run(uri: str, run_id: str) -> TrainingRun | None:
    """Return the run `run_id` of the store `uri`; None if it has no such run.

    Raises
    ------
    ConfigError
        If the store does not answer.
    UsageError
        If the run is not a psflow training.
    """
    from mlflow.exceptions import MlflowException

    client = mlflow_client(uri)
    try:
        run = retried(lambda: client.get_run(run_id))
        experiment = retried(lambda: client.get_experiment(run.info.experiment_id)).name
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise _unanswered(uri, error) from None
    except OSError as error:
        raise _unanswered(uri, error) from None
    if MODEL_DIR not in run.data.tags:
        raise UsageError((f"the MLflow run {run_id} is not a psflow training: it has no tag {MODEL_DIR}",))
    return TrainingRun(run_id, experiment, run.data.tags[MODEL_DIR], run.data.tags.get(JOB_ID))


def open_child_run(
    uri: str,
    *,
    kind: str,
    experiment: str,
    model_dir: str,
    parent: TrainingRun | None,
    run_name: str,
    tags: Mapping[str, str],
    datasets: Iterable[DatasetInfo] = (),
    is_new: bool = False,
) -> Tracker:
    """Open or create the child run of one `kind` of a training, and start to write.

    A training has one such run, which later calls continue, so that it has one curve for each metric. If the run of the
    training is unknown, the model_dir identifies the child run.

    Raises ConfigError if the store does not answer.
    """
    from mlflow.exceptions import MlflowException

    client = mlflow_client(uri)
    named = {**_named(kind, model_dir, parent), **tags}

    def read() -> tuple[Run, RecordedModels, Points]:
        known = None if is_new else _find(client, parent.experiment if parent else experiment, named)
        run = open_run(
            client,
            experiment=parent.experiment if parent else experiment,
            run_name=run_name,
            run_id=None if known is None else known.info.run_id,
            params={},
            tags=named,
            datasets=datasets,
        )
        models = RecordedModels(client, run.info.experiment_id, parent.run_id if parent else run.info.run_id, None)
        models.read()
        return run, models, Points.of_run(client, run.info.run_id)

    try:
        run, models, points = retried(read)
    except (MlflowException, OSError) as error:
        raise _unanswered(uri, error) from None
    return Tracker(
        client, run.info.run_id, points, models, run.data.tags, run_page(uri, run.info.experiment_id, run.info.run_id)
    )


def child_run_lacks(
    uri: str,
    evaluations: Iterable[EvaluationRecord],
    *,
    kind: str,
    experiment: str,
    model_dir: str,
    parent: TrainingRun | None,
) -> bool:
    """Return whether the run of `open_child_run` exists and lacks points of `evaluations`; changes nothing.

    Their evaluation was killed, or lost MLflow, before they were written.

    Raises ConfigError if the store does not answer.
    """
    from mlflow.exceptions import MlflowException

    client = mlflow_client(uri)
    try:
        named, where = _named(kind, model_dir, parent), parent.experiment if parent else experiment
        run = retried(lambda: _find(client, where, named))
        points = None if run is None else retried(lambda: Points.of_run(client, run.info.run_id))
    except (MlflowException, OSError) as error:
        raise _unanswered(uri, error) from None
    return points is not None and any(points.of_evaluation(evaluation_event(e), None) for e in evaluations)


def _named(kind: str, model_dir: str, parent: TrainingRun | None) -> dict[str, str]:
    """Return the tags that identify the child run of a training."""
    named = {KIND: kind, MODEL_DIR: without_secrets(model_dir)}
    if parent is None:
        return named
    job = {} if parent.job_id is None else {JOB_ID: parent.job_id}
    return {**named, PARENT: parent.run_id, **job}


def _find(client: MlflowClient, experiment: str, tags: Mapping[str, str]) -> Run | None:
    """Return the newest run with the kind and the parent, else the model_dir, of `tags`."""
    found = client.get_experiment_by_name(experiment)
    if found is None:
        return None
    key = PARENT if PARENT in tags else MODEL_DIR
    runs = client.search_runs(
        [found.experiment_id],
        f"tags.`{KIND}` = '{tags[KIND]}' and tags.`{key}` = {_quoted(tags[key])}",
        order_by=["attributes.start_time DESC"],
    )
    return next((run for run in runs if key == PARENT or PARENT not in run.data.tags), None)


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def _unanswered(uri: str, error: Exception) -> ConfigError:
    return ConfigError((f"cannot open an MLflow run in {without_secrets(uri)}: {reason_of(error)}",))


RUNS_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class Figure:
    """Last value of a metric, with global_step and time (Unix seconds)."""

    value: float
    step: int
    at: float


@dataclass(frozen=True)
class RunningRun:
    """A psflow run in progress."""

    run_id: str
    name: str
    kind: str
    started_at: float
    tags: Mapping[str, str]
    figures: Mapping[str, Figure]


def running_runs(uri: str) -> list[RunningRun]:
    """Return the psflow runs in the store `uri` that are marked as running, newest first.

    Raises ConfigError if the store does not answer.
    """
    try:
        runs = unended_runs(mlflow_client(uri), MODEL_DIR)
    except Exception as error:  # each kind of store has its own errors
        raise ConfigError((f"cannot list the running runs of the MLflow store: {reason_of(error)}",)) from None
    return [_running(run) for run in runs]


def unended_runs(client: MlflowClient, tag: str) -> list[Run]:
    """Return the runs of all experiments that are marked as running and have the tag `tag`, newest first."""
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
    for metric in run.data.to_proto().metrics:  # the entity exposes values only
        yield metric.key, Figure(metric.value, metric.step, metric.timestamp / 1000)
