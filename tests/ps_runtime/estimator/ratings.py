"""A model with a sparse table, its data, and checkpoints of it as two ps would write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from psflow import metrics
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.shards import save_shard
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.calls.caller import BuiltModel
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers import GradientDescent
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.specs.layout import place
from psflow.ps_runtime.tables.table import Table

NUM_RECORDS, BATCH_SIZE, NUM_ITEMS, DIM, NUM_PS = 40, 4, 1000, 3, 2
RNG = np.random.default_rng(3)
ITEMS = RNG.integers(0, NUM_ITEMS, size=(NUM_RECORDS, 2))
LABELS = RNG.normal(size=NUM_RECORDS).astype(np.float32)
SGD = GradientDescent(learning_rate=0.1)


def ratings(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    items = embedding_lookup("items", features["items"], NUM_ITEMS, DIM, combiner="sum", scale=0.5)
    predicted = items.sum(axis=1) + get_variable("bias")
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"rating": predicted})
    error = predicted - labels
    of_items = np.broadcast_to((2 * error / len(error))[:, np.newaxis, np.newaxis], (*features["items"].shape, DIM))
    gradients = {"bias": 2 * error.mean(), "items": SparseGradient(features["items"], of_items)}
    return EstimatorSpec(
        mode,
        loss=np.mean(error**2),
        train_op=SGD.apply_gradients(gradients),
        eval_metric_ops={"mae": metrics.mean_absolute_error(labels, predicted)},
    )


def records() -> Dataset:
    return Dataset({"items": ITEMS}, LABELS).batch(BATCH_SIZE)


def save_checkpoint(estimator: Estimator, step: int, **pushed: float) -> BuiltModel:
    """Write a checkpoint whose bias is 0.25 and whose rows have moved as far as `pushed` says: ``i7=0.5``."""
    features = {"items": ITEMS[:BATCH_SIZE]}
    built = estimator.caller.build(features, LABELS[:BATCH_SIZE], ModeKeys.TRAIN, seed=1)
    store, shards = CheckpointStore(estimator.model_dir), []
    for layout in place(built.model, NUM_PS):
        table = Table(built.model.tables[0], SGD, layout.index, NUM_PS)
        for name, distance in pushed.items():
            if (id_ := int(name[1:])) % NUM_PS == layout.index:
                gradient = np.full((1, DIM), -distance, np.float32)
                table.push(np.array([id_]), gradient, learning_rate=1.0, num_updates=1)
        arena = np.full(layout.nbytes // 4, 0.25, np.float32).view(np.uint8)
        shards.append(save_shard(store, step, NUM_PS, layout, arena, [{} for _ in layout.groups], [table]))
    model = replace(built.model, schema=records().schema())
    store.commit(Manifest.of(step, model, Snapshot(step, {}, {}, 0).to_facts(), shards))
    return built
