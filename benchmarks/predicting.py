"""What is predicted: an exported model and a file of rows; and the limit, one process with nothing around numpy."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psflow.tasks.prediction.output import to_csv
from threadpoolctl import threadpool_limits

from benchmarks.models import mlp
from psflow import Estimator, EvalSpec, Event, Export, FinalExporter, RunConfig, TrainSpec, train_and_evaluate
from psflow.tasks.exports.writer import MlflowModelWriter

__all__ = ["export_model", "main", "predict_alone", "save_arrays", "write_rows"]

BATCH_ROWS = 1024


def write_rows(path: Path, num_rows: int) -> None:
    """Write rows to predict, in the form of the network's images."""
    np.savez(path, features=np.random.default_rng(5).random((num_rows, mlp.NUM_PIXELS), np.float32))


def export_model(model_dir: Path) -> tuple[str, dict[str, Any]]:
    """Train the network for a few steps; return the folder of its export, and its variables."""
    events: list[Event] = []
    input_fn = partial(mlp.input_fn, {})
    estimator = Estimator(mlp.model_fn, str(model_dir), RunConfig(tf_random_seed=1))
    train_and_evaluate(
        estimator,
        TrainSpec(input_fn, max_steps=10),
        EvalSpec(input_fn, steps=1, exporters=FinalExporter("final")),
        writer=MlflowModelWriter(),
        on_event=events.append,
    )
    [path] = [event.path for event in events if isinstance(event, Export)]
    return path, {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to an npz file."""
    np.savez(path, allow_pickle=False, **arrays)


def predict_alone(rows: Path, variables: Path, output: Path) -> tuple[float, float]:
    """Read rows, predict them, write the predictions as CSV, as the flow does.

    Returns
    -------
    tuple of float
        The seconds without and with reading.
    """
    to_csv({"x": np.zeros(1)})  # imports what it needs
    started = time.monotonic()
    with np.load(variables) as stored:
        values = dict(stored)
    with np.load(rows) as stored:
        features = stored["features"]
    read = time.monotonic()
    with threadpool_limits(limits=1):
        batches = [
            mlp.hidden_and_logits(values, features[start : start + BATCH_ROWS])[1]
            for start in range(0, len(features), BATCH_ROWS)
        ]
    logits = np.concatenate(batches)
    output.write_bytes(to_csv({"class_ids": logits.argmax(axis=1), "logits": logits}))
    ended = time.monotonic()
    return ended - read, ended - started


def main(rows: str, variables: str, output: str) -> None:
    """Predict alone, and print the seconds without and with reading."""
    print(*predict_alone(Path(rows), Path(variables), Path(output)))


if __name__ == "__main__":
    main(*sys.argv[1:])
