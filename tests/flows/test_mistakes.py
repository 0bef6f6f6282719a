"""Whole messages of common mistakes, none of which changes anything."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster
from prefect.settings import PREFECT_API_URL, temporary_settings

from psflow.flows import cli
from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.tasks.prefect_server.api import check_named_api
from tests.flows.conftest import TABLE_CONF
from tests.full_disk import run_on_small_disk

OWN = "or one of your own as package.module:name"


@pytest.fixture(autouse=True)
def directory(table: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a small project, and no flow that begins: whatever is refused is refused before."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    monkeypatch.setattr("psflow.flows.head_start.head_start", lambda *_: nullcontext())
    monkeypatch.setattr("psflow.flows.train.invoke", _only_prepare)
    monkeypatch.setattr("psflow.ps_runtime.cluster.connecting.CONNECT_TIMEOUT_SECS", 0.2)
    return table


def _only_prepare(
    flow: object, parameters: Any, prepare: Callable[[Any], AbstractContextManager[object]], **options: object
) -> dict[str, Any]:
    check_named_api(timeout_secs=0.1)
    with prepare(parameters):
        pytest.fail("a flow would have begun")


def said(capsys: pytest.CaptureFixture[str], *arguments: str, exit_code: int = 2) -> str:
    """Return what a command says on stderr; it must leave all files as they were."""
    before = sorted(Path.cwd().rglob("*"))
    assert cli.run(arguments) == exit_code
    assert sorted(Path.cwd().rglob("*")) == before
    return capsys.readouterr().err


def test_a_misspelt_key(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.yaml").write_text(TABLE_CONF.replace("max_steps", "max_step"))
    assert said(capsys, "train", "t.yaml") == (
        "psflow: t.yaml:7: train.max_step: unknown key; did you mean 'max_steps'?\n"
    )


def test_a_wrong_type(capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.yaml").write_text(TABLE_CONF.replace("max_steps: 2", "max_steps: many"))
    assert said(capsys, "train", "t.yaml") == "psflow: t.yaml:7: train.max_steps: expected an integer, got 'many'\n"


def test_a_missing_column(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    assert said(capsys, "train", "t.yaml", "input.train.label=z") == (
        f"psflow: {directory}/t.csv has no column 'z'; its columns are 'a', 'b', 'y'\n"
    )


def test_a_wrong_model_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "train", "t.yaml", "model.name=DNNClasifier") == (
        "psflow: command line: model.name: unknown model 'DNNClasifier', expected one of BaselineClassifier, "
        "BaselineRegressor, DNNClassifier, DNNLinearCombinedClassifier, DNNLinearCombinedRegressor, DNNRegressor, "
        f"LinearClassifier, LinearRegressor, {OWN}; did you mean 'DNNClassifier'?\n"
    )


@pytest.mark.process
def test_no_such_checkpoint(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    settings = read_settings(["t.yaml", "train.save_checkpoints_steps=1"])
    training = build_training(parse_parameters(settings.values, settings.origins))
    training.estimator.train(training.train_spec.input_fn, max_steps=2)
    assert said(capsys, "evaluate", "t.yaml", "--model-dir", "runs/t", "--checkpoints", "7") == (
        f"psflow: no such checkpoint: {directory}/runs/t has none of step 7, the nearest is 2; there are 0, 1, 2\n"
    )


def test_mlflow_is_down(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    words = said(capsys, "train", "t.yaml")
    assert words.startswith("psflow: the MLflow store http://127.0.0.1:1 cannot be used: API request to")
    assert words.endswith(
        'Connection refused")); start it or correct MLFLOW_TRACKING_URI, '
        "or unset that to use mlflow.db in the working directory\n"
    )


def test_prefect_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}):
        assert said(capsys, "train", "t.yaml") == (
            "psflow: the Prefect API at http://127.0.0.1:1/api does not answer within 0.1 s: "
            "[Errno 111] Connection refused; start it, "
            "or unset PREFECT_API_URL; if psflow up started it, run psflow down, then psflow up\n"
        )


def test_the_dask_scheduler_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "train", "t.yaml", "cluster.address=tcp://127.0.0.1:1") == (
        "psflow: no Dask scheduler answers at tcp://127.0.0.1:1 within 0.2 s: Timed out trying to connect to "
        "tcp://127.0.0.1:1 after 0.2 s; start it, or correct cluster.address\n"
    )


def test_a_cluster_too_small(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)  # Prefect's handler may have the closed stderr of a test
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as small:
        address = small.scheduler_address
        assert said(capsys, "train", "t.yaml", f"cluster.address={address}", "cluster.workers=4") == (
            f"psflow: the job has 7 roles, but the Dask cluster at {address} has 2 free slots; "
            "start more Dask workers, or ask for fewer roles (cluster.ps, cluster.workers)\n"
        )


FILLED = """
import json, shutil, sys
from pathlib import Path
import numpy as np
from psflow import Adam, Estimator, EstimatorSpec, RunConfig, get_variable
from psflow.ps_runtime.errors import PsflowError

disk = Path(sys.argv[1])

def model(features, labels, mode):
    w = get_variable("w", (10_000,))
    return EstimatorSpec(mode, loss=float(w[0]), train_op=Adam(learning_rate=0.1).apply_gradients({"w": w}))

def points():
    while True:
        yield {"x": np.ones(1)}, None

def train(steps):
    config = RunConfig(save_checkpoints_steps=1, keep_checkpoint_max=1, tf_random_seed=1)
    Estimator(model, str(disk / "m"), config).train(points, max_steps=steps)

train(1)
(disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - 30_000))
try:
    train(3)
except PsflowError as error:
    said = str(error)
left = sorted(path.relative_to(disk).as_posix() for path in disk.rglob("*") if path.is_file())
(disk / "ballast").unlink()
train(3)
print(json.dumps([said, left, [path.name for path in sorted((disk / "m" / "checkpoints").iterdir())]]))
"""


@pytest.mark.process
def test_a_disk_that_is_full_at_a_checkpoint(tmp_path: Path) -> None:
    said, left, checkpoints = json.loads(run_on_small_disk(FILLED, tmp_path, "1m").splitlines()[-1])
    shard = f"{tmp_path}/m/checkpoints/step_00000002/shard_00000_of_00001.safetensors"
    assert said == (
        f"checkpoint of step 2: ps-0 could not write its part of checkpoint 2: {shard} could not be written: "
        f"No space left on device (0.0 MB are free); free some space, or correct the permissions of {shard}, "
        "then run the same command again"
    )
    whole = ["manifest.json", "shard_00000_of_00001.safetensors"]
    files = ["ballast", "m/.job.lock", *(f"m/checkpoints/step_00000001/{name}" for name in whole), "m/job.json"]
    assert left == files
    assert checkpoints == ["step_00000003"]
