"""Runs a trial whose fault hits a server that ``psflow train`` reports to: it trains on, and no point is missing."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path

import psutil
from mlflow import MlflowClient

from psflow.flows.output import ExitCode
from tests.chaos.gates import POLL_SECS, Gates
from tests.chaos.oracles import violations, wrong_points, wrong_runs
from tests.chaos.outcome import LateError, Outcome, limited
from tests.chaos.program import LOG_STEPS, MAX_STEPS, SAVE_STEPS
from tests.chaos.trials import SIGNALS, STOPPED_SECS, Fault, Input, Target, Trial, Update, name_of
from tests.mlflow_server import MlflowServer
from tests.new_databases import copy_prefect_database, copy_store

ROOT = Path(__file__).parents[2]
PSFLOW = Path(sys.executable).with_name("psflow")
EXPERIMENT = "trial"
LOG = "train.log"
SAID_CHARS = 3000
"""Of the end of the log, beside what is found to be wrong."""
NAMING_OTHERS = ("TF_CONFIG", "PREFECT_API_URL", "PREFECT_API_KEY", "MLFLOW_REGISTRY_URI")
"""Variables that name a cluster or servers which are not those of the trial."""


def run_beside(trial: Trial, directory: Path) -> Outcome:
    """Run a trial and judge it. Blocks. `directory` is empty, and is not removed."""
    outcome, gates = Outcome(trial), Gates.of(trial, directory)
    copy_prefect_database(directory / "prefect")
    (directory / "trial.yaml").write_text(json.dumps(_configuration(trial, gates)))
    server = MlflowServer(copy_store(directory), directory)
    server.start()
    try:
        with _training(directory, server.url) as process:
            _strike(trial, gates, server, process, outcome)
            exit_code = _awaited(process, lambda: False)
        runs = _run_states(directory / "prefect" / "prefect.db")
        if exit_code == ExitCode.INCOMPLETE:  # MLflow was too slow, and the command is to be run again
            with _training(directory, server.url) as process:
                exit_code = _awaited(process, lambda: False)
        if exit_code:
            outcome.violations.append(f"psflow train ended with {exit_code}")
        else:
            outcome.violations += violations(trial, directory / "job", [])
            outcome.violations += wrong_points(_curves(server.url))
            outcome.violations += wrong_runs(runs, trial.num_ps)
    except LateError as error:
        outcome.violations.append(str(error))
    finally:
        server.stop()
    if outcome.violations:
        outcome.violations.append(f"psflow train said: {(directory / LOG).read_text()[-SAID_CHARS:]}")
    return outcome


def _configuration(trial: Trial, gates: Gates) -> dict[str, object]:
    names = {field.name: name_of(getattr(trial, field.name)) for field in fields(trial)}
    read = "generator" if trial.input is Input.GENERATOR else "endless"
    consistency: dict[str, object] = {"name": name_of(trial.update)}
    if trial.update is Update.BOUNDED_STALENESS:
        consistency["max_staleness"] = 8
    return {
        "experiment": EXPERIMENT,
        "seed": 1,
        "code_dir": str(ROOT),
        "model_dir": str(gates.directory.with_name("job")),
        "model": {"name": "tests.chaos.configured:model_fn", "params": {"trial": names, "gates": str(gates.directory)}},
        "input": {
            "train": {"name": f"tests.chaos.program:{read}"},
            "eval": {"name": "tests.chaos.program:records"},
        },
        "train": {
            "max_steps": MAX_STEPS,
            "save_checkpoints_steps": SAVE_STEPS,
            "keep_checkpoint_max": None,
            "log_step_count_steps": LOG_STEPS,
            "each_worker_reads_all": trial.input is Input.EACH_READS_ALL,
            "consistency": consistency,
        },
        "eval": {"start_delay_secs": 0, "throttle_secs": 0, "steps": None},
        "cluster": {"ps": trial.num_ps, "workers": trial.num_workers},
        "transport": trial.transport.value,
        "pipeline_depth": trial.pipeline_depth,
        "plots": False,
    }


@contextmanager
def _training(directory: Path, mlflow_url: str) -> Iterator[psutil.Popen]:
    """Run ``psflow train`` for the time of a block; what it says goes to a file."""
    environment = {name: value for name, value in os.environ.items() if name not in NAMING_OTHERS}
    environment |= {"MLFLOW_TRACKING_URI": mlflow_url, "PREFECT_HOME": str(directory / "prefect")}
    with (directory / LOG).open("wb") as log:
        process = psutil.Popen([PSFLOW, "train", "trial.yaml"], cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()


def _strike(trial: Trial, gates: Gates, server: MlflowServer, process: psutil.Popen, outcome: Outcome) -> None:
    """Have the fault happen in its phase."""
    if _awaited(process, lambda: gates.is_reached) is not None:
        return
    outcome.has_hit = True
    outcome.num_kills = int(trial.fault is Fault.KILL)
    with _struck(trial, server, process):
        gates.open()
        time.sleep(STOPPED_SECS.get(trial.fault, 0.0))
    gates.note_recovery()


def _awaited(process: psutil.Popen, has_come: Callable[[], bool]) -> int | None:
    """Wait until something has come, or the command has ended; return its exit code, or None."""
    look = limited(lambda: None)
    while process.poll() is None and not has_come():
        look()
        time.sleep(POLL_SECS)
    exit_code: int | None = process.poll()
    return exit_code


@contextmanager
def _struck(trial: Trial, server: MlflowServer, process: psutil.Popen) -> Iterator[None]:
    """Have the fault for the time of a block; MLflow is well again afterwards."""
    if trial.target is Target.PREFECT:
        prefect = _prefect_of(process)
        prefect.send_signal(SIGNALS[trial.fault])
        yield
        if trial.fault in STOPPED_SECS:
            prefect.resume()
    elif trial.fault in STOPPED_SECS:
        server.suspend()
        yield
        server.resume()
    else:
        server.stop(SIGNALS[trial.fault])
        yield
        server.start()


def _prefect_of(process: psutil.Popen) -> psutil.Process:
    """Return the Prefect server that a command has started for itself."""
    [server] = [child for child in process.children() if "prefect_server/process.py" in " ".join(child.cmdline())]
    return server


def _run_states(database: Path) -> list[tuple[str, str, str]]:
    """Return the kind, the name and the state of each run in the database of a Prefect server."""
    query = (
        "select 'flow run', name, state_type from flow_run union all select 'task run', name, state_type from task_run"
    )
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def _curves(mlflow_url: str) -> dict[str, list[int]]:
    """Return the steps of the points of each curve of the one run."""
    client = MlflowClient(mlflow_url, mlflow_url)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    keys = run.data.metrics
    return {key: [point.step for point in client.get_metric_history(run.info.run_id, key)] for key in keys}
