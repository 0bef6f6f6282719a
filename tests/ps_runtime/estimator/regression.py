"""A small regression, its data, and what one may want to see of its training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from psflow import metrics, summary
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.hooks.base import SessionRunArgs, SessionRunHook
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import Adam

NUM_RECORDS = 40
BATCH_SIZE = 4
NUM_BATCHES = 10
X = np.random.default_rng(3).normal(size=(NUM_RECORDS, 2)).astype(np.float32)
Y = X @ np.float32([2, -1]) + np.float32(0.5)


def regression(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    predicted = features["x"] @ get_variable("w", (2,)) + get_variable("b")
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": predicted, "row": features["row"]})
    error = predicted - labels
    loss = np.mean(error**2)
    summary.scalar("bias", error.mean())
    gradients = {"w": 2 * features["x"].T @ error / len(error), "b": 2 * error.mean()}
    return EstimatorSpec(
        mode,
        predictions={"row": features["row"]},
        loss=loss,
        train_op=Adam(learning_rate=0.05).apply_gradients(gradients),
        eval_metric_ops={"mae": metrics.mean_absolute_error(labels, predicted)},
    )


def spoilt(name: str, value: float, row: int = 17) -> Any:
    """Return a model_fn whose gradient of `name` is `value` for the batch with one row, and whose loss is finite."""

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        spec = regression(features, labels, mode)
        if row not in features["row"]:
            return spec
        gradients = {**spec.train_op.gradients, name: np.float32(value) * spec.train_op.gradients[name]}
        return replace(spec, train_op=spec.train_op.optimizer.apply_gradients(gradients))

    return model_fn


def records() -> Dataset:
    return unbatched().batch(BATCH_SIZE)


def unbatched() -> Dataset:
    return Dataset({"x": X, "row": np.arange(NUM_RECORDS)}, Y)


def shuffled() -> Dataset:
    return replace(records(), shuffle_seed=5).repeat()


def computed() -> Any:
    """Return the records as `records` does, each computed when it is read."""
    return unbatched().map(lambda features, y: (features, y)).batch(BATCH_SIZE)


def filtered() -> Any:
    """Return the records as `records` does, as a stream."""
    return unbatched().filter(lambda features, y: True).batch(BATCH_SIZE)


def batches() -> Iterator[Any]:
    data = records()
    for start in range(0, NUM_RECORDS, BATCH_SIZE):
        yield data.read(0, start, start + BATCH_SIZE)


class BatchRows(SessionRunHook):
    """Keeps the rows and global steps that it sees."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.steps: list[int] = []

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs(["row", "global_step"])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        rows, step = run_values.results
        self.rows += rows.tolist()
        self.steps.append(step)


class FailAt(SessionRunHook):
    """Raises after a global step."""

    def __init__(self, step: int) -> None:
        self._step = step
        self.ended = False

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.global_step == self._step:
            raise ZeroDivisionError("as planned")

    def end(self, session: Any) -> None:
        self.ended = True


def arrays_of(model_dir: str, step: int) -> dict[tuple[str, str | None], bytes]:
    """Return weights and slots of a checkpoint, their checksums verified."""
    with CheckpointReader.pinned(CheckpointStore(model_dir), step, "test") as reader:
        manifest = reader.manifest
        num_rows = {v.name: v.num_rows for v in manifest.model.variables}
        keys = {(entry.variable, entry.slot) for entry in manifest.tensors}
        return {key: reader.rows(*key, 0, num_rows[key[0]]).tobytes() for key in keys}


def steps_of(model_dir: str) -> list[int]:
    """Return the steps of the checkpoints of a model_dir."""
    return CheckpointStore(model_dir).steps()
