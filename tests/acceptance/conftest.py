"""Servers and flows that stay up for the tests of a module, as ``psflow up`` and ``psflow serve`` start them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from psflow.tasks.basic_auth import LOGIN_PATH
from tests.checks.tiers import NUM_PIECES
from tests.flows.conftest import Project, project, served_project  # noqa: F401 - two of them are fixtures

POLL_SECS = 0.5
HERE = Path(__file__).parent
FOLDERS = (HERE, HERE.parent / "hosts")
"""Of the tests that pieces run."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse an acceptance test that does not say in which piece it is: nothing would run it."""
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in FOLDERS):
            item.add_marker(pytest.mark.process)
            pieces = [mark.kwargs.get("number") for mark in item.iter_markers("piece")]
            if len(pieces) != 1 or pieces[0] not in range(1, NUM_PIECES + 1):
                found = f"expected one mark pytest.mark.piece(number=1 to {NUM_PIECES}), got {pieces}"
                raise pytest.UsageError(f"{item.nodeid}: {found}")


def wait_for(condition: Callable[[], Any], timeout_secs: float, what: str) -> Any:
    """Return what `condition` does once that is true; fail the test after `timeout_secs`."""
    deadline = time.monotonic() + timeout_secs
    while not (found := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {timeout_secs:g} s")
        time.sleep(POLL_SECS)
    return found


@dataclass(frozen=True)
class Served:
    """A directory in which servers are up and flows are served."""

    project: Project
    client: SyncPrefectClient
    store: str
    process: subprocess.Popen[bytes]

    def start(self, deployment: str, idempotency_key: str | None = None, **parameters: Any) -> UUID:
        """Ask for a run with some parameters that are not those of the deployment, as its form does; return its id."""
        found = self.client.read_deployment_by_name(deployment)
        told = {**found.parameters.get("parameters", {}), **parameters}
        run = self.client.create_flow_run_from_deployment(
            found.id, parameters={"parameters": _as_sent(told)}, idempotency_key=idempotency_key
        )
        return run.id

    def state(self, run_id: UUID) -> str:
        return str(self.client.read_flow_run(run_id).state_type.value)  # type: ignore[union-attr]

    def flow_runs(self, name: str) -> list[FlowRun]:
        return [run for run in self.client.read_flow_runs(limit=200) if run.name.startswith(name)]

    def mlflow_runs(self, experiment: str) -> list[Run]:
        client = MlflowClient(self.store)
        found = client.get_experiment_by_name(experiment)
        return [] if found is None else list(client.search_runs([found.experiment_id]))


def _as_sent(value: Any) -> Any:
    """Return `value` as a browser sends it, in which 60.0 is 60."""
    if isinstance(value, dict):
        return {name: _as_sent(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_sent(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Give what serves configurations, in a directory with a Prefect and an MLflow server of its own."""
    place = Project(tmp_path_factory.mktemp("served"))
    servers = place.run("up")
    processes: list[subprocess.Popen[bytes]] = []

    def start(*files: str) -> Served:
        with (place.path / "serve.log").open("ab") as log:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("psflow"), "serve", *files],
                cwd=place.path,
                env=place.environment,
                stdout=log,
                stderr=log,
            )
        processes.append(process)
        return Served(place, client, servers["mlflow"]["login"].removesuffix(LOGIN_PATH), process)

    try:
        auth_string = urlsplit(servers["prefect"]["login"]).netloc.rpartition("@")[0]
        api = {PREFECT_API_URL: f"{servers['prefect']['url']}/api", PREFECT_API_AUTH_STRING: auth_string}
        with temporary_settings(api), get_client(sync_client=True) as client:
            yield start
    finally:
        for process in processes:
            process.send_signal(signal.SIGINT)
            process.wait(120)
        place.run("down")
