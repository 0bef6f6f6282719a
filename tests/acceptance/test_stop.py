"""How long a command takes to end by a signal, whatever else is dead, and with which exit code.

By default each scene meets each signal, and each signal meets each state of the servers: 18 cells. ``PSFLOW_STOP=all``
runs all 90. The table is left in ``runs/stop.md``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.sorting import FlowRunSort
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling

from psflow.tasks.tracking.store import prepare_store
from tests.acceptance.conftest import Served, wait_for
from tests.acceptance.test_schedule import owner
from tests.flows.conftest import DIGITS_CONF, PSFLOW, ROOT, Project
from tests.mlflow_server import MlflowServer
from tests.new_databases import copy_prefect_database

STOP_SECS = 10.0
READY_SECS = 150.0
GIVE_UP_SECS = 60.0
"""For a command that does not end in time: the table says so."""
POLL_SECS = 0.05
SETTLE_SECS = 1.0
"""Between the end of a server and the signal: requests to it are under way by then."""
TABLE = ROOT / "runs" / "stop.md"

SCENES = ("training", "starting", "evaluating", "predicting", "pipeline", "serve")
SIGNALS = ("SIGINT", "SIGTERM", "SIGTERM to all")
"""SIGINT goes to the group, as Ctrl-C does; the last one to every process below the command, as systemd's does."""
STATES = ("all alive", "Prefect dead", "Prefect hangs", "MLflow dead", "MLflow hangs")

IN_CI = {
    ("training", "SIGTERM to all", "MLflow hangs"),
    ("starting", "SIGTERM", "MLflow dead"),
    ("evaluating", "SIGINT", "Prefect hangs"),
    ("predicting", "SIGTERM", "all alive"),
    ("pipeline", "SIGTERM", "Prefect dead"),
    ("serve", "SIGINT", "all alive"),
}
"""Each scene once, with all signals, and all states of the servers."""

pytestmark = [
    pytest.mark.piece(number=7),
    pytest.mark.process(shared=True),
    pytest.mark.timeout(600),
    pytest.mark.measured,
]

Cell = tuple[str, str, str]


def cells() -> list[Cell]:
    """Return what is run, the default choice first: in it every two signals of a scene meet other states."""
    chosen = [
        (scene, number, STATES[(i + 2 * j) % len(STATES)])
        for i, scene in enumerate(SCENES)
        for j, number in enumerate(SIGNALS)
    ]
    others = [cell for cell in product(SCENES, SIGNALS, STATES) if cell not in chosen]
    return chosen + (others if os.environ.get("PSFLOW_STOP") == "all" else [])


MODELS = """
import time
from pathlib import Path
import numpy as np
from user_models import line, points

def slow_line(features, labels, mode, params):
    if mode == "infer" and len(features["x"]) > 100:
        Path(params["mark"]).touch()
        time.sleep(0.1)
    return line(features, labels, mode, params)

def slow_points(params):
    for number, batch in enumerate(points({"num_batches": 1000})):
        if number > 0:
            Path(params["mark"]).touch()
            time.sleep(0.1)
        yield batch
"""

LINE = """
experiment: line
seed: 1
model: {name: "stop_models:slow_line", params: {learning_rate: 0.1, mark: %s}}
input:
  train: {name: "user_models:points", params: {num_batches: 200}}
  eval: {name: "user_models:points", params: {num_batches: 3}}
train: {save_checkpoints_steps: 50}
cluster: {workers: 0}
"""

DIGITS = DIGITS_CONF.replace("max_steps: 60, save_checkpoints_steps: 30", "max_steps: 10000000")
PIPELINE = DIGITS + '\ncluster: {workers: 0}\npipeline: {predict: {input: "digits:test"}}\n'


@dataclass
class Place:
    """A directory with a trained model, and the servers that its commands use."""

    project: Project
    mlflow: MlflowServer
    environment: dict[str, str]
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.project.path / "log"

    @property
    def mark(self) -> Path:
        """A file that slow code makes as it begins."""
        return self.project.path / "mark"

    def run(self, *arguments: str) -> None:
        subprocess.run([PSFLOW, *arguments], cwd=self.project.path, env=self.environment, check=True)

    def start(self, *arguments: str) -> psutil.Popen:
        with self.log.open("wb") as log:
            return psutil.Popen(
                [PSFLOW, *arguments],
                cwd=self.project.path,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a shell's background commands would ignore SIGINT
            )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    path = tmp_path_factory.mktemp("stop")
    server = MlflowServer(prepare_store(f"sqlite:///{path}/mlflow.db"), path)
    server.start()
    project = Project(path)
    copy_prefect_database(path / "prefect")
    place = Place(project, server, {**project.environment, "MLFLOW_TRACKING_URI": server.url})
    project.write("stop_models.py", MODELS)
    project.write("line.yaml", LINE % place.mark)
    project.write("digits.yaml", DIGITS)
    project.write("pipeline.yaml", PIPELINE)
    np.savez(path / "x.npz", x=np.zeros(400_000, np.float32))
    place.run("train", "line.yaml")
    yield place
    server.stop()


@pytest.fixture(scope="module")
def table() -> dict[Cell, str]:
    """Return how each cell came out, so far."""
    return {}


def write(table: dict[Cell, str]) -> None:
    """Leave the table of all cells so far."""
    lines = [
        "Seconds from the signal to the end of the command, and of its last process; and its exit code.",
        "",
        f"| scene | signal | {' | '.join(STATES)} |",
        f"|---|---|{'---|' * len(STATES)}",
    ]
    for scene, number in product(SCENES, SIGNALS):
        row = [table.get((scene, number, state), "") for state in STATES]
        lines.append(f"| {scene} | {number} | {' | '.join(row)} |")
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join(lines) + "\n")


def begun(place: Place, scene: str) -> psutil.Popen:
    """Start the command of a scene; return once it does what the scene is about."""
    runs = place.project.path / "runs" / "small"
    shutil.rmtree(runs, ignore_errors=True)
    place.mark.unlink(missing_ok=True)
    slow = ("evals.slow.input.name=stop_models:slow_points", f"evals.slow.input.params={{mark: {place.mark}}}")
    model = ("--model", "models:/psflow-line@best", "--input", "x.npz", "--output", "predicted")
    shutil.rmtree(place.project.path / "predicted", ignore_errors=True)
    commands: dict[str, tuple[tuple[str, ...], Callable[[], object]]] = {
        "training": (("train", "digits.yaml"), lambda: list(runs.glob("checkpoints/*/manifest.json"))),
        "starting": (("train", "digits.yaml"), (runs / "job.json").exists),
        "evaluating": (("evaluate", "--model-dir", "runs/line", *slow), place.mark.exists),
        "predicting": (("predict", *model), place.mark.exists),
        "pipeline": (("pipeline", "pipeline.yaml"), lambda: list(runs.glob("checkpoints/*/manifest.json"))),
    }
    arguments, is_ready = commands[scene]
    process = place.start(*arguments)
    wait_for(lambda: is_ready() or process.poll() is not None, READY_SECS, f"{scene} begins")
    assert process.poll() is None, place.log.read_text()
    return process


@contextmanager
def servers_up(place: Place) -> Iterator[tuple[dict[str, Any], psutil.Process]]:
    """Have ``psflow up`` for a block; give what it notes of its Prefect server, and the process of that."""
    place.run("up")
    [server] = json.loads((place.project.path / "prefect" / "psflow-servers.json").read_text())
    prefect = psutil.Process(server["process"]["pid"])
    try:
        yield server, prefect
    finally:
        with suppress(psutil.NoSuchProcess):
            prefect.resume()
        place.run("down")


@contextmanager
def client_of(server: Mapping[str, Any]) -> Iterator[SyncPrefectClient]:
    """Give a client of a Prefect server."""
    api = {PREFECT_API_URL: f"{server['url']}/api", PREFECT_API_AUTH_STRING: server["auth_string"]}
    with temporary_settings(api), get_client(sync_client=True) as client:
        yield client


def begun_to_serve(place: Place, server: Mapping[str, Any]) -> psutil.Popen:
    """Serve, and start a run; return once it trains."""
    process = place.start("serve", "digits.yaml")
    wait_for(lambda: "serving train/small" in place.log.read_text(), READY_SECS, "psflow serve")
    model_dir = place.project.path / "runs" / "served"
    shutil.rmtree(model_dir, ignore_errors=True)
    with client_of(server) as client:
        served = Served(place.project, client, place.mlflow.url, process)
        served.start("train/small", model_dir=str(model_dir))
    wait_for(lambda: list(model_dir.glob("checkpoints/*/manifest.json")), READY_SECS, "a run begins")
    return process


@contextmanager
def running(place: Place, scene: str) -> Iterator[tuple[psutil.Popen, psutil.Process]]:
    """Give the command of a scene, which has begun, and the process of its Prefect server."""
    if scene != "serve":
        process = begun(place, scene)
        yield process, private_server(process)
        return
    with servers_up(place) as (server, prefect):
        yield begun_to_serve(place, server), prefect


def private_server(process: psutil.Popen) -> psutil.Process:
    """Return the Prefect server that a command has started for itself."""
    [server] = [child for child in process.children() if "prefect_server/process.py" in " ".join(child.cmdline())]
    return server


@contextmanager
def servers_as(state: str, place: Place, prefect: psutil.Process, settle_secs: float) -> Iterator[None]:
    """Bring the servers into a state; afterwards MLflow is well again."""
    match state:
        case "Prefect dead":
            prefect.kill()
        case "Prefect hangs":
            prefect.suspend()
        case "MLflow dead":
            place.mlflow.stop()
        case "MLflow hangs":
            place.mlflow.suspend()
    time.sleep(settle_secs)
    try:
        yield
    finally:
        if state == "MLflow dead":
            place.mlflow.start()
        if state == "MLflow hangs":
            place.mlflow.resume()


def send(process: psutil.Popen, number: str) -> None:
    if number == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)
        return
    for target in (*(process.children(recursive=True) if number == "SIGTERM to all" else ()), process):
        with suppress(psutil.NoSuchProcess):
            target.send_signal(signal.SIGTERM)


def secs_to_end(process: psutil.Popen, number: str) -> tuple[float, float]:
    """Send the signal; return the seconds to the end of the command, and of the last process below it."""
    below = process.children(recursive=True)
    began_at = time.monotonic()
    send(process, number)
    with suppress(psutil.TimeoutExpired):
        process.wait(GIVE_UP_SECS)
    command_secs = time.monotonic() - began_at
    while any(map(is_running, below)) and time.monotonic() - began_at < GIVE_UP_SECS:
        time.sleep(POLL_SECS)
    all_secs = time.monotonic() - began_at
    for left in (*below, process):
        with suppress(psutil.NoSuchProcess):
            left.kill()
    return command_secs, all_secs


def is_running(process: psutil.Process) -> bool:
    """Return whether a process has not ended; whoever inherits it may take a while to notice that it has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    "cell", [pytest.param(cell, marks=pytest.mark.ci if cell in IN_CI else ()) for cell in cells()], ids="-".join
)
def test_a_signal_ends_everything_in_time(place: Place, table: dict[Cell, str], cell: Cell) -> None:
    scene, number, state = cell
    settle_secs = 0.0 if scene == "starting" else SETTLE_SECS  # what starts without MLflow fails by itself, soon
    with running(place, scene) as (process, prefect), servers_as(state, place, prefect, settle_secs):
        command_secs, all_secs = secs_to_end(process, number)
        exit_code = process.wait()
    said = place.log.read_text()
    table[cell] = f"{command_secs:.1f} / {all_secs:.1f} s, {exit_code}"
    write(table)
    assert exit_code == 128 + (signal.SIGINT if number == "SIGINT" else signal.SIGTERM), said
    assert all_secs < STOP_SECS, said
    assert f"run the same command again to {'serve again' if scene == 'serve' else 'resume'}" in said.splitlines()[-1]
    if scene == "training" and state.startswith("MLflow"):
        assert (place.project.path / "runs" / "small" / "waiting_metrics.jsonl").exists()
    if state == "all alive" and scene != "serve":
        assert "ERROR" not in said
        assert "Traceback" not in said


@pytest.mark.parametrize("scene", ["training", "serve"])
def test_a_cancellation_ends_every_role_in_time(place: Place, scene: str) -> None:
    with servers_up(place) as (server, _), client_of(server) as client:
        command = begun_to_serve(place, server) if scene == "serve" else begun(place, scene)
        flow = owner(place.project.path / "runs" / ("served" if scene == "serve" else "small"))
        assert flow is not None
        processes = [flow, *flow.children(recursive=True)]
        assert len(processes) > 4
        [run] = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1)
        began_at = time.monotonic()
        client.set_flow_run_state(run.id, Cancelling())
        _, alive = psutil.wait_procs(processes, timeout=STOP_SECS)
        secs = time.monotonic() - began_at
        if command.poll() is None:  # it serves on
            secs_to_end(command, "SIGTERM")
        assert not alive, f"{secs:.1f} s"
        wait_for(lambda: client.read_flow_run(run.id).state_name == "Cancelled", 5.0, "the flow run")


@pytest.mark.parametrize("moment", ["before it has begun", "while it trains"])
def test_a_run_that_hangs_as_serving_ends_is_cancelled(place: Place, moment: str) -> None:
    with servers_up(place) as (server, _), client_of(server) as client:
        if moment == "while it trains":
            command = begun_to_serve(place, server)
        else:
            command = place.start("serve", "digits.yaml")
            wait_for(lambda: "serving train/small" in place.log.read_text(), READY_SECS, "psflow serve")
            Served(place.project, client, place.mlflow.url, command).start("train/small")
        run_process = wait_for(lambda: runs_below(command), READY_SECS, "the process of the run")[0]
        run_process.suspend()
        [run] = client.read_flow_runs(sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1)
        _, all_secs = secs_to_end(command, "SIGTERM")
        assert run.state is not None
        assert run.state.is_running() if moment == "while it trains" else run.state.is_pending()
        assert command.wait() == 128 + signal.SIGTERM
        assert all_secs < STOP_SECS
        wait_for(lambda: client.read_flow_run(run.id).state_name == "Cancelled", 5.0, "the flow run")


def runs_below(command: psutil.Popen) -> list[psutil.Process]:
    return [child for child in command.children() if "prefect.engine" in child.cmdline()]
