"""How much the memory of an evaluator grows: run as a program, a process of its own, it prints that in MB."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
from scipy.stats import theilslopes

from psflow import Dataset, Estimator, EvalSpec, LatestExporter, RunConfig, TrainSpec
from psflow.ps_runtime.checkpoint.records import write_finished
from psflow.ps_runtime.errors import BrokenPeerError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.evaluator import run_evaluator
from psflow.ps_runtime.roles.events import Evaluation, Event
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.tasks.exports.writer import MlflowModelWriter

NUM_FIRST = 10
"""Evaluations after which all that stays is there: imports, buffers of BLAS, memory that the allocator keeps."""


def examples() -> Dataset:
    """Return 4 MB of examples."""
    random = np.random.default_rng(1)
    return Dataset({"x": random.normal(size=(8_000, 128)).astype(np.float32)}, random.integers(10, size=8_000)).batch(
        500
    )


def stream() -> Any:
    """Yield arrays that are made anew for each evaluation."""
    yield examples().read(0, 0, 500)


def nobody(timeout_secs: float) -> Any:
    """Be a ps that has left."""
    raise BrokenPeerError("ps-0", "nobody listens")


def growth_mb(num_evaluations: int, *, exports: bool) -> float:
    """Evaluate so many checkpoints, each against two EvalSpecs; return by how much the process has grown with them.

    That is the slope of its size (Theil-Sen), times the evaluations: what the allocator takes once, whenever that is,
    is no growth with each of them.

    Parameters
    ----------
    num_evaluations : int
        Checkpoints; of each other values, 0.3 MB.
    exports : bool
        Whether each is exported as an MLflow model, too.
    """
    with tempfile.TemporaryDirectory() as model_dir:
        last = num_evaluations + NUM_FIRST - 1
        config = RunConfig(model_dir=model_dir, tf_random_seed=1, save_checkpoints_steps=1, keep_checkpoint_max=None)
        params = {
            "hidden_units": [512],
            "activation_fn": "relu",
            "dropout": None,
            "feature_columns": None,
            "head": ClassifierSpec(10),
            "optimizer": GradientDescent(learning_rate=0.01),
        }
        estimator = Estimator(dnn_model, config=config, params=params)
        estimator.train(lambda: replace(examples(), batch_size=10).repeat(), max_steps=last)
        exporters = [LatestExporter("latest", exports_to_keep=2)] if exports else []
        quick = {"start_delay_secs": 0, "throttle_secs": 0}
        specs = [
            EvalSpec(examples, 10, exporters=exporters, **quick),  # type: ignore[arg-type]
            EvalSpec(stream, 1, name="stream", **quick),  # type: ignore[arg-type]
        ]
        process, sizes = psutil.Process(), []

        def send(event: Event) -> None:
            if isinstance(event, Evaluation) and event.name == "stream":
                sizes.append(process.memory_info().rss / 2**20)

        with Attempt(estimator, TrainSpec(examples, last + 1), specs) as attempt:
            write_finished(model_dir, last, "all steps are done")
            run_evaluator(
                attempt.job(MlflowModelWriter() if exports else None),
                RoleContext(RoleId(Role.EVALUATOR, 0), 1, lambda: None, send),
                [nobody],
            )
    assert len(sizes) == num_evaluations + NUM_FIRST
    return float(theilslopes(sizes[NUM_FIRST - 1 :]).slope) * num_evaluations


if __name__ == "__main__":
    print(growth_mb(int(sys.argv[1]), exports="exports" in sys.argv[2:]))
