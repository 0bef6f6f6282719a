"""Replay on a cluster: the same bits as one evaluation after the other, in little more than half the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from psflow.flows.evaluate import evaluate
from psflow.flows.parameters.configuration import write_config
from psflow.flows.parameters.stages import EvaluateParameters
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.tasks.prefect_server.api import prefect_api
from psflow.tasks.tracking.store import prepare_store
from tests.dask_tls import certificates_named

pytestmark = pytest.mark.piece(number=8)


NUM_CHECKPOINTS = 20
MIN_CPU_SECS = 0.5
MAX_SHARE = 0.65


def parameters_of(model_dir: Path) -> TrainParameters:
    def source(seed: int, num_rows: int, batch_size: int) -> dict[str, Any]:
        params = {"seed": seed, "num_rows": num_rows, "batch_size": batch_size}
        return {"name": "tests.acceptance.replayed:examples", "params": params}

    return TrainParameters.model_validate(
        {
            "experiment": "replayed",
            "seed": 3,
            "model": {"name": "tests.acceptance.replayed:deep", "params": {"depth": 128}},
            "input": {"train": source(1, 160, 8), "eval": source(2, 16384, 512)},
            "evals": {"other": {"input": source(3, 16384, 512)}},
            "train": {"max_steps": NUM_CHECKPOINTS, "save_checkpoints_steps": 1, "keep_checkpoint_max": None},
            "model_dir": str(model_dir),
        }
    )


@pytest.fixture
def trained(tmp_path: Path) -> TrainParameters:
    parameters = parameters_of(tmp_path / "replayed")
    training = build_training(parameters)
    training.estimator.train(training.train_spec.input_fn, max_steps=NUM_CHECKPOINTS)
    write_config(parameters.model_dir, parameters)
    return parameters


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give a Dask cluster of two workers; a Prefect server and an MLflow store are up, too."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with prefect_api() as url, open_cluster(None, 2, 60.0) as client, certificates_named(client.security):
        monkeypatch.setenv("PREFECT_API_URL", url)
        prepare_store()
        yield client.scheduler_info()["address"]


def one_by_one(parameters: TrainParameters) -> tuple[dict[tuple[str, int], dict[str, float]], float]:
    """Evaluate as one does without a cluster; return the metrics by name and step, and the least CPU seconds of any."""
    training = build_training(parameters)
    found, cpu_secs = {}, []
    with threadpool_limits(limits=1):
        for step in range(1, NUM_CHECKPOINTS + 1):
            path = f"{parameters.model_dir}/checkpoints/step_{step:08d}"
            for spec in training.eval_specs:
                began = time.process_time()
                found[spec.name or "", step] = training.estimator.evaluate(
                    spec.input_fn, spec.steps, checkpoint_path=path
                )
                cpu_secs.append(time.process_time() - began)
    return found, min(cpu_secs)


@pytest.mark.timeout(600)
@pytest.mark.measured
@pytest.mark.cluster
def test_replay_on_two_workers_is_the_same_in_less_time(trained: TrainParameters, address: str) -> None:
    began = time.monotonic()
    expected, cpu_secs = one_by_one(trained)
    serial_secs = time.monotonic() - began
    assert cpu_secs >= MIN_CPU_SECS

    parameters = EvaluateParameters.model_validate(
        {"model_dir": trained.model_dir, "checkpoints": f"1..{NUM_CHECKPOINTS}", "cluster": {"address": address}}
    )
    began = time.monotonic()
    facts = evaluate(parameters)
    replay_secs = time.monotonic() - began

    assert facts["num_evaluated"] == 2 * NUM_CHECKPOINTS
    got = {(e.name, e.global_step): dict(e.metrics) for e in EvaluationLog(trained.model_dir).read()}
    assert got == expected  # every bit
    share = replay_secs / serial_secs
    print(f"one by one {serial_secs:.1f} s, replay {replay_secs:.1f} s: {share:.2f} of it")
    assert share <= MAX_SHARE
