"""A training that is over, with its MLflow run; a Prefect server and a Dask cluster that are up."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from psflow.flows.parameters.configuration import write_config
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.tasks.tracking.store import prepare_store
from psflow.tasks.tracking.tracker import Tracker
from tests.dask_tls import certificates_named
from tests.new_databases import copy_store


def points(num_batches: int) -> dict[str, Any]:
    return {"name": "tests.flows.user_models:points", "params": {"num_batches": num_batches}}


CONFIG = {
    "experiment": "line",
    "seed": 1,
    "model": {"name": "tests.flows.user_models:line", "params": {"learning_rate": 0.1}},
    "input": {"train": points(6), "eval": points(3)},
    "evals": {"more": {"input": points(5)}},
    "train": {"save_checkpoints_steps": 2},
}


@pytest.fixture(scope="module")
def cluster(prefect_named: None) -> Iterator[dict[str, Any]]:
    """Give the parameters of a Dask cluster; a Prefect server is up, too."""
    with open_cluster(None, 2, 300) as client, certificates_named(client.security):
        yield {"address": client.scheduler_info()["address"]}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a line, and record that in an MLflow store of its own."""
    path = tmp_path_factory.mktemp("made")
    parameters = TrainParameters.model_validate({**CONFIG, "model_dir": str(path / "line")})
    training = build_training(parameters)
    training.estimator.train(training.train_spec.input_fn)
    write_config(parameters.model_dir, parameters)
    store = prepare_store(copy_store(path))
    tracker = Tracker.open(store, experiment="line", run_name="line", tags={"psflow.model_dir": parameters.model_dir})
    assert tracker.close()
    file = JobFile(parameters.model_dir)
    file.claim()
    file.update(run_id=tracker.run_id)
    file.release()
    return path


@pytest.fixture
def trained(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    job = tmp_path / "line" / "job.json"
    job.write_text(job.read_text().replace(str(made), str(tmp_path)))  # a training of its own, not a copy of one
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return tmp_path / "line"
