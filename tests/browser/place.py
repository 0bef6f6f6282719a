"""A place as the README has it: the two servers of psflow up, a finished training, and psflow serve."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from psflow.tasks.basic_auth import authorization
from tests.flows.conftest import PSFLOW, ROOT, Project

CONF = ROOT / "conf" / "digits.yaml"
STEPS = (0, 100, 200, 300, 400)
"""Of the checkpoints."""
COMMAND_SECS = 300.0
SERVING_SECS = 90.0


@dataclass(frozen=True)
class Place:
    """Where everything is.

    Parameters
    ----------
    prefect, mlflow : str
        Addresses of the pages.
    logins : sequence of str
        The addresses that log a browser in to them.
    flow_run_id, experiment_id : str
        Of the finished training, in Prefect and in MLflow.
    program : mapping of str to str
        The experiment_id and the run_id of a program that records itself.
    deployment_id, configured_id : str
        Of ``train/train``, whose form is empty, and of ``train/digits``.
    run : dict
        What the training answered.
    """

    prefect: str
    mlflow: str
    logins: Sequence[str]
    flow_run_id: str
    experiment_id: str
    program: Mapping[str, str]
    deployment_id: str
    configured_id: str
    run: dict[str, Any]

    def configured_parameters(self) -> dict[str, Any]:
        """Return what a run of ``train/digits`` is given if nobody changes anything."""
        parameters: dict[str, Any] = self._ask(f"deployments/{self.configured_id}")["parameters"]
        return parameters

    def scheduled_run(self) -> dict[str, Any] | None:
        """Return the run of ``train/digits`` that somebody has asked for, and nobody has cancelled."""
        of_form = {"deployment_id": {"any_": [self.configured_id]}, "state": {"type": {"not_any_": ["CANCELLED"]}}}
        return next(iter(self._ask("flow_runs/filter", {"flow_runs": of_form})), None)

    def cancel(self, run: Mapping[str, Any]) -> None:
        """Have a run not begin."""
        self._ask(f"flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLED"}, "force": True})

    def _ask(self, path: str, body: Any = None) -> Any:
        return _answer(self.logins[0], f"/api/{path}", body)


@contextmanager
def set_up(folder: Path) -> Iterator[Place]:
    """Start servers in an empty folder, train, and serve; stop all of it at the end."""
    project = Project(folder, COMMAND_SECS)
    servers = project.run("up")
    try:
        steps = (f"train.max_steps={STEPS[-1]}", f"train.save_checkpoints_steps={STEPS[1]}")
        run = project.run("train", str(CONF), *steps)
        _run_program(project, servers["mlflow"]["login"])
        with _serving(project):
            yield place_of(servers, run)
    finally:
        project.run("down")


PROGRAM = f"""
import runpy, psflow
psflow.autolog(experiment="programs")
runpy.run_path({str(ROOT / "examples" / "migrated" / "linear.py")!r}, run_name="__main__")
"""


def _run_program(project: Project, mlflow: str) -> None:
    """Run a migrated program that asks for a record."""
    auth_string, _, host = urlsplit(mlflow).netloc.rpartition("@")
    environment = {**project.environment, "MLFLOW_TRACKING_URI": f"http://{auth_string}@{host}"}
    command = [sys.executable, "-c", PROGRAM]
    subprocess.run(command, cwd=project.path, env=environment, check=True, timeout=COMMAND_SECS)


@contextmanager
def _serving(project: Project) -> Iterator[None]:
    with (project.path / "serve.log").open("wb") as log:
        command = [str(PSFLOW), "serve", str(CONF)]
        process = subprocess.Popen(command, cwd=project.path, env=project.environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SERVING_SECS)


def place_of(servers: Mapping[str, Mapping[str, str]], run: dict[str, Any]) -> Place:
    """Look up what the addresses of pages are made of; wait until the deployment is there."""
    prefect, mlflow = logins = [servers[kind]["login"] for kind in ("prefect", "mlflow")]
    found = _answer(mlflow, f"/api/2.0/mlflow/runs/get?run_id={run['run_id']}")["run"]
    tags = {tag["key"]: tag["value"] for tag in found["data"]["tags"]}
    deployments = [_deployment_id(prefect, name) for name in ("train", "digits")]
    flow_run_id, experiment_id = tags["psflow.prefect_flow_run"], found["info"]["experiment_id"]
    experiment = _answer(mlflow, "/api/2.0/mlflow/experiments/get-by-name?experiment_name=programs")["experiment"]
    recorded = _answer(mlflow, "/api/2.0/mlflow/runs/search", {"experiment_ids": [experiment["experiment_id"]]})
    program = {name: recorded["runs"][0]["info"][name] for name in ("experiment_id", "run_id")}
    urls = [servers[kind]["url"] for kind in ("prefect", "mlflow")]
    return Place(*urls, logins, flow_run_id, experiment_id, program, *deployments, run)


def _deployment_id(prefect: str, name: str) -> str:
    deadline = time.monotonic() + SERVING_SECS
    while "id" not in (deployment := _answer(prefect, f"/api/deployments/name/train/{name}")):
        assert time.monotonic() < deadline, f"psflow serve has not made train/{name} within {SERVING_SECS:g} s"
        time.sleep(0.2)
    return str(deployment["id"])


def _answer(login: str, path: str, body: Any = None) -> Any:
    """Return what a server answers to GET, or to POST with a `body`."""
    auth_string, _, host = urlsplit(login).netloc.rpartition("@")
    headers = {"Authorization": authorization(auth_string), "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(host, timeout=30)) as connection:
        connection.request("GET" if body is None else "POST", path, body and json.dumps(body), headers)
        return json.load(connection.getresponse())
