"""Predictions by Dask workers that die."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import Dataset, Estimator, EstimatorSpec, GradientDescent, ModeKeys, RunConfig, get_variable
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.ordered_results import WorkersLostError

pytestmark = pytest.mark.process


X = np.arange(64, dtype=np.float32)


def rows() -> Dataset:
    return Dataset({"x": X}).batch(1)


@pytest.mark.cluster
def test_a_worker_that_dies_costs_a_repetition_and_no_row(tmp_path: Path) -> None:
    deaths = tmp_path / "died"

    def dying(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = get_variable("w", initializer=0.5)
        if mode != ModeKeys.PREDICT:
            return EstimatorSpec(mode, loss=w**2, train_op=GradientDescent(0.1).apply_gradients({"w": 2 * w}))
        if features["x"][0] == 40 and not deaths.exists():
            deaths.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if features["x"][0] == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        return EstimatorSpec(mode, predictions=w * features["x"])

    def allow_no_death(dask_scheduler: Any = None) -> None:
        dask_scheduler.allowed_failures = 0

    model = Estimator(dying, str(tmp_path / "model"), RunConfig(tf_random_seed=1))
    model.train(rows, steps=1)
    with open_cluster(None, 2, 300) as client:
        predicted = list(model.predict(rows, client=client))
        assert deaths.exists()
        np.testing.assert_array_equal(predicted, model.get_variable_value("w") * X)

        client.run_on_scheduler(allow_no_death)
        said = r"^1 Dask workers died while they computed records 0 to 2 of the predict input \(the first is 0\): see"
        with pytest.raises(WorkersLostError, match=said):
            next(model.predict(lambda: {"x": np.full(3, 99, np.float32)}, client=client))
