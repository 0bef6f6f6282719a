"""A torch module on a Dask cluster: who imports torch, what replicas do to running statistics, and lost roles."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from distributed import Client  # noqa: E402
from torch import nn  # noqa: E402

import psflow  # noqa: E402
from psflow.ps_runtime.cluster.connecting import open_cluster  # noqa: E402
from psflow.ps_runtime.roles.events import RoleLost  # noqa: E402
from psflow.torch import TorchEstimator  # noqa: E402
from tests.leak_guard import no_leaks  # noqa: E402

pytestmark = pytest.mark.cluster

X = np.random.default_rng(1).normal(3.0, 2.0, (400, 6)).astype(np.float32)
Y = (X[:, :2].sum(axis=1) > 6).astype(np.int64)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.drop, self.last = (
            nn.BatchNorm1d(6), nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 1)
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(torch.tanh(self.first(self.norm(x)))))


def endless() -> psflow.Dataset:
    return psflow.Dataset(X, Y).shuffle(400, seed=2).batch(20).repeat()


def all_rows() -> psflow.Dataset:
    return psflow.Dataset(X, Y).batch(100)


EVAL = psflow.EvalSpec(all_rows, None, start_delay_secs=0, throttle_secs=0)


@pytest.fixture  # for each test, as a process that was a ps may have another role in the next
def client() -> Iterator[Client]:
    with no_leaks(), open_cluster(None, 4, 300) as client:  # ps, chief, worker and evaluator
        yield client


def estimator(model_dir: Path, **config: Any) -> TorchEstimator:
    config = {"tf_random_seed": 1, "save_checkpoints_steps": 50, "save_checkpoints_secs": None} | config
    return TorchEstimator(Net, psflow.BinaryClassHead(), psflow.Adam(0.01), model_dir, psflow.RunConfig(**config))


def has_torch(pid: int) -> bool:
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("consistency", [psflow.Async(), psflow.Sync(replicas_to_aggregate=2)])
def test_two_replicas_learn_and_the_ps_never_imports_torch(client: Client, tmp_path: Path, consistency: Any) -> None:
    trained = estimator(tmp_path, consistency=consistency)
    psflow.train_and_evaluate(trained, psflow.TrainSpec(endless, 400), EVAL, client=client, num_workers=1)
    assert trained.evaluate(all_rows)["accuracy"] > 0.9
    assert trained.get_variable_value("norm.running_mean") == pytest.approx(X.mean(axis=0), abs=0.5)
    assert trained.get_variable_value("norm.running_var") == pytest.approx(X.var(axis=0, ddof=1), rel=0.3)
    assert trained.get_variable_value("norm.num_batches_tracked") == 400
    assert sorted(map(has_torch, client.run(os.getpid).values())) == [False, True, True, True]


class Harm(psflow.SessionRunHook):
    """Kills its own process at step 70, and lets the test kill that of the ps at step 130, each once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def before_run(self, run_context: Any) -> psflow.SessionRunArgs:
        return psflow.SessionRunArgs("global_step")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.results >= 70 and not (self.directory / "chief").exists():
            (self.directory / "chief").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if run_values.results >= 130:
            (self.directory / "ready").touch()
            while not (self.directory / "ps").exists():
                time.sleep(0.01)


def kill_ps(client: Client, directory: Path) -> None:
    while not (directory / "ready").exists():
        time.sleep(0.01)
    tasks = client.processing()
    [address] = [address for address, keys in tasks.items() if any("ps-0" in key for key in keys)]
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
    (directory / "ps").touch()


def test_lost_roles_change_no_bit(tmp_path: Path) -> None:
    calm = estimator(tmp_path / "calm")
    calm.train(endless, max_steps=200)
    harmed, lost = estimator(tmp_path / "harmed"), []
    spec = psflow.TrainSpec(endless, 200, hooks=[Harm(tmp_path)])
    with open_cluster(None, 3, 300) as own, ThreadPoolExecutor(1) as executor:
        killing = executor.submit(kill_ps, own, tmp_path)
        psflow.train_and_evaluate(harmed, spec, EVAL, client=own, on_event=lost.append)
        killing.result()
    assert {str(event.role) for event in lost if isinstance(event, RoleLost)} >= {"chief-0", "ps-0"}
    for name in calm.get_variable_names():
        assert np.array_equal(calm.get_variable_value(name), harmed.get_variable_value(name)), name
