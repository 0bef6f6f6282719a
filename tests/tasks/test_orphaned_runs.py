"""Closing the runs of processes that were killed, in a real Prefect server and a real MLflow store."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from uuid import UUID

import pytest
from mlflow import MlflowClient
from prefect import flow, task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Paused, Pending, Running

from psflow.ps_runtime.checkpoint.job_file import JobRecord
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.estimator.attempt import ENDED_STEP
from psflow.tasks.orphaned_runs import (
    FLOW_RUN_TAG,
    close_flow_runs,
    close_mlflow_runs,
    close_orphaned_runs,
    note_cancelling,
)
from psflow.tasks.owners import JOB_ID, KIND, MODEL_DIR, OWNER, owner_text

ME = ProcessId.current()
DEAD = json.dumps(asdict(replace(ME, started=ME.started + 1)))


@flow
def train() -> None: ...


@task
def role() -> None: ...


@pytest.fixture(scope="module")
def client(prefect_url: str) -> Iterator[SyncPrefectClient]:
    with temporary_settings({PREFECT_API_URL: prefect_url}), get_client(sync_client=True) as client:
        yield client


def flow_run(client: SyncPrefectClient, owner: str | None, *tags: str) -> UUID:
    """Create a running flow run with two open task runs."""
    run = client.create_flow_run(train, tags=tags, state=Running())
    if owner is not None:
        client.update_flow_run_labels(run.id, {OWNER: owner})
    for name, state in (("ps-0", Running()), ("chief-0", Pending())):
        client.create_task_run(role, run.id, dynamic_key=name, name=name, state=state)
    return run.id


def states(client: SyncPrefectClient, run_id: UUID) -> list[str]:
    of_this = FlowRunFilter.model_validate({"id": {"any_": [run_id]}})
    tasks = client.read_task_runs(flow_run_filter=of_this)
    return [str(client.read_flow_run(run_id).state_type.value), *sorted(t.state_type.value for t in tasks)]


@pytest.mark.cluster(shared=True)
def test_only_flow_runs_of_psflow_without_a_process_are_closed(client: SyncPrefectClient) -> None:
    dead, living = flow_run(client, DEAD, FLOW_RUN_TAG, "digits"), flow_run(client, owner_text(), FLOW_RUN_TAG)
    unknown, of_others = flow_run(client, None, FLOW_RUN_TAG), flow_run(client, DEAD, "theirs")

    assert close_flow_runs() == 1
    assert close_flow_runs() == 0

    assert states(client, dead) == ["CRASHED"] * 3
    assert str(client.read_flow_run(dead).state.message).startswith(
        "its process has ended, killed or lost with its host"
    )
    for run_id in (living, unknown, of_others):
        assert states(client, run_id) == ["RUNNING", "PENDING", "RUNNING"]


@flow
def pipeline() -> None:
    train()


@pytest.mark.cluster(shared=True)
@pytest.mark.parametrize("is_ending", [False, True])
def test_the_stages_of_a_pipeline_end_with_it_tagged_or_not(client: SyncPrefectClient, is_ending: bool) -> None:
    parent = client.create_flow_run(pipeline, tags=[FLOW_RUN_TAG], state=Running())
    client.update_flow_run_labels(parent.id, {OWNER: DEAD})
    stages = []
    for tags in ((), (FLOW_RUN_TAG,)):  # Prefect gives the tags of a command to stages, but not those of a deployment
        stage_task = client.create_task_run(role, parent.id, dynamic_key=str(tags), state=Running())
        stage = client.create_flow_run(train, parent_task_run_id=stage_task.id, tags=tags, state=Running())
        client.update_flow_run_labels(stage.id, {OWNER: DEAD})
        client.create_task_run(role, stage.id, dynamic_key="ps-0", state=Paused(name="Retired"))
        stages.append(stage.id)
    if is_ending:
        note_cancelling({parent.id: replace(ME, started=ME.started + 1)}, "psflow serve was ended by SIGTERM")

    assert close_flow_runs() == 3

    state = "CANCELLED" if is_ending else "CRASHED"
    assert states(client, parent.id) == [state] * 3
    assert [states(client, stage) for stage in stages] == [[state] * 2] * 2
    if is_ending:
        assert client.read_flow_run(stages[1]).state.message == "psflow serve was ended by SIGTERM"  # type: ignore[union-attr]


@pytest.mark.cluster(shared=True)
def test_a_run_that_was_to_end_is_cancelled_when_its_process_is_killed(client: SyncPrefectClient) -> None:
    training, begins, ended = (flow_run(client, None, FLOW_RUN_TAG) for _ in range(3))
    client.set_flow_run_state(begins, Pending(), force=True)
    client.set_flow_run_state(ended, Completed())
    dead = replace(ME, started=ME.started + 1)

    note_cancelling(dict.fromkeys((training, begins, ended), dead), "psflow serve was ended by SIGTERM")

    assert [states(client, run_id)[0] for run_id in (training, begins, ended)] == ["CANCELLING"] * 2 + ["COMPLETED"]
    assert close_flow_runs() == 2
    assert states(client, training) == ["CANCELLED"] * 3
    assert states(client, begins)[0] == "CANCELLED"
    assert client.read_flow_run(begins).state.message == "psflow serve was ended by SIGTERM"  # type: ignore[union-attr]


def test_only_mlflow_runs_without_a_process_are_closed(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr("psflow.tasks.tracking.child_run.RUNS_PER_PAGE", 1)  # none is overlooked beside many
    client = MlflowClient(store)
    owners: tuple[dict[str, str], ...] = ({OWNER: DEAD}, {OWNER: owner_text()}, {}, {OWNER: DEAD}, {})
    runs = [client.create_run("0", tags=tags).info.run_id for tags in owners]

    assert close_mlflow_runs() == 2

    statuses = [client.get_run(run_id).info.status for run_id in runs]
    assert statuses == ["KILLED", "RUNNING", "RUNNING", "KILLED", "RUNNING"]


def test_a_training_that_ended_while_mlflow_was_away_was_not_killed(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    client = MlflowClient(store)
    (tmp_path / "job.json").write_text(JobRecord("j1", facts={ENDED_STEP: 1500}).to_json())
    tags = {OWNER: DEAD, JOB_ID: "j1", MODEL_DIR: str(tmp_path)}
    about = [client.create_run("0", tags=tags | kind).info.run_id for kind in ({}, {KIND: "evaluate"}, {JOB_ID: "j2"})]

    assert close_mlflow_runs() == 3

    assert [client.get_run(run_id).info.status for run_id in about] == ["FINISHED", "KILLED", "KILLED"]
    assert "is marked as finished: training reached step 1500, but MLflow could not be reached" in caplog.text


def test_servers_that_are_away_are_logged_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> int:
        raise OSError("no answer from http://bob:secret@host")

    monkeypatch.setattr("psflow.tasks.orphaned_runs.close_flow_runs", away)
    monkeypatch.setattr("psflow.tasks.orphaned_runs.close_mlflow_runs", lambda: 3)
    with caplog.at_level(logging.WARNING):
        assert close_orphaned_runs() == 3
    assert caplog.messages == ["cannot mark the runs of ended processes: no answer from http://host"]
