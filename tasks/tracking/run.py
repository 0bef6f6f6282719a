"""Creates or resumes the MLflow run of a job."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.redaction import without_secrets
from psflow.tasks.owners import JOB_ID, KIND, OWNER, owner_text, trains
from psflow.tasks.tracking.points import valid_key
from psflow.tasks.tracking.store import artifact_location

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MAX_DIGEST_LENGTH = 36
NOTE, OWN_NOTE = "mlflow.note.content", "psflow.note"
"""Tags with the description of a run, and with the digest of the last one that psflow wrote."""


class DatasetInfo(TypedDict):
    """A data set for MLflow. `context` is ``train`` or ``eval``; `schema` is plain data, such as columns."""

    name: str
    context: str
    digest: str
    schema: Any
    source: str


def open_run(
    client: MlflowClient,
    *,
    experiment: str,
    run_name: str,
    run_id: str | None,
    params: Mapping[str, Any],
    tags: Mapping[str, str | None],
    datasets: Iterable[DatasetInfo],
    is_callers: bool = False,
) -> Run:
    """Create a run, or resume `run_id` or else the run of the same job, and describe it.

    Raises ConfigError if `run_id` is not in this store, or the experiment was deleted.

    Notes
    -----
    A job that was killed before it recorded its run finds it by the tag ``psflow.job_id``.

    MLflow never changes a parameter. If a resume changes its value, the parameter keeps the first one, and the tag
    ``psflow.param.<name>`` has the last. A description by the user is not replaced. A tag with the value None is
    removed: it is of an earlier attempt. With `is_callers` a user's program owns the run `run_id`, and its status.
    """
    present = {name: value for name, value in tags.items() if value is not None}
    if run_id is None:
        run = _create_or_find(client, _experiment_id(client, experiment), run_name, present)
    else:
        run = _resume(client, run_id, is_callers=is_callers)
    values = {valid_key(name): str(value) for name, value in params.items()}
    known = run.data.params
    changed = {f"psflow.param.{k}": v for k, v in values.items() if k in known and known[k] != v}
    new_tags = {k: v for k, v in present.items() if k != NOTE} | changed | _note(present, run.data.tags)
    for name in (valid_key(name) for name in tags.keys() - present.keys()):
        if name in run.data.tags:
            client.delete_tag(run.info.run_id, name)
    _describe(client, run.info.run_id, {k: v for k, v in values.items() if k not in known}, new_tags)
    _log_datasets(client, run.info.run_id, datasets)
    return client.get_run(run.info.run_id)


def _note(tags: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of a new description, unless the user has changed the last one."""
    if NOTE not in tags or (NOTE in known and _digest(known[NOTE]) != known.get(OWN_NOTE)):
        return {}
    return {NOTE: tags[NOTE], OWN_NOTE: _digest(tags[NOTE])}


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _create_or_find(client: MlflowClient, experiment_id: str, run_name: str, tags: Mapping[str, str]) -> Run:
    from mlflow.tracking.context.registry import resolve_tags

    job_id = tags.get(JOB_ID)
    if job_id is not None and trains(tags):
        runs = client.search_runs([experiment_id], f"tags.`{JOB_ID}` = '{job_id}'")
        found = next((run for run in runs if trains(run.data.tags)), None)
        if found is not None:
            return _resume(client, found.info.run_id)
    # created with these tags, so that a killed job can find its run, and confuses it with no other
    known = {key: tags[key] for key in (JOB_ID, KIND) if key in tags}
    # MLflow finds the source of this process, which may be that of psflow; `code_version` that of the user
    of_process = {key: value for key, value in resolve_tags().items() if not key.startswith("mlflow.source.")}
    return _create(client, experiment_id, run_name, of_process | {OWNER: owner_text()} | known)


def _create(client: MlflowClient, experiment_id: str, run_name: str, tags: dict[str, str]) -> Run:
    """Create a run exactly once: this process never creates two within a millisecond."""
    started_at = round(1000 * time.time())
    try:
        return client.create_run(experiment_id, started_at, tags, run_name)
    except Exception:
        runs = client.search_runs([experiment_id], f"attributes.start_time = {started_at}")
        for run in runs:
            if run.data.tags.get(OWNER) == tags[OWNER]:
                return run
        raise


def _resume(client: MlflowClient, run_id: str, *, is_callers: bool = False) -> Run:
    from mlflow.exceptions import MlflowException

    try:
        if not is_callers:
            client.set_tag(run_id, OWNER, owner_text())  # before it runs, else it would count as orphaned
            client.update_run(run_id, status="RUNNING")
        return client.get_run(run_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise ConfigError((missing_run(client.tracking_uri, run_id),)) from None


def missing_run(uri: str, run_id: str) -> str:
    """Return the fault of a job whose run `run_id` is not in the store `uri`."""
    return (
        f"the MLflow run {run_id} of this job is not in {without_secrets(uri)}; "
        "set MLFLOW_TRACKING_URI to its store, or start with another model_dir"
    )


def _experiment_id(client: MlflowClient, name: str) -> str:
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location(client.tracking_uri)))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
            found = client.get_experiment_by_name(name)  # another job created it meanwhile
    if found is None or found.lifecycle_stage == "deleted":
        raise ConfigError(
            (f"the MLflow experiment {name!r} was deleted; restore it (mlflow experiments restore), or name another",)
        )
    return str(found.experiment_id)


def _describe(client: MlflowClient, run_id: str, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
    from mlflow.entities import Param, RunTag

    client.log_batch(
        run_id,
        params=[Param(k, v) for k, v in params.items()],
        tags=[RunTag(valid_key(k), str(v)) for k, v in tags.items()],
    )


def _log_datasets(client: MlflowClient, run_id: str, datasets: Iterable[DatasetInfo]) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

    inputs = [
        DatasetInput(
            Dataset(
                name=d["name"],
                digest=d["digest"][:MAX_DIGEST_LENGTH],
                source_type="local",
                source=json.dumps({"uri": d["source"]}),
                schema=json.dumps(d["schema"]),
            ),
            [InputTag(MLFLOW_DATASET_CONTEXT, d["context"])],
        )
        for d in datasets
    ]
    if inputs:
        client.log_inputs(run_id, inputs)
