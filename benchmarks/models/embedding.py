"""A table of 1,000,000 x 16 with Adagrad; a batch looks up 1024 x 26 rows, and their sum is the logit of an event.

Ids are uniform, or follow a Zipf law: the k-th most frequent row has a share proportional to ``k ** -1.05``, and
frequent rows are scattered over the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow import Adagrad, Dataset, EstimatorSpec, ModeKeys, get_variable, initializers, summary
from psflow.ps_runtime.losses import sigmoid_cross_entropy
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.tables.duplicate_ids import find_occurrences

__all__ = ["NUM_ROWS", "arrays", "bare_step", "input_fn", "model_fn", "uniform_ids", "zipf_ids"]

NUM_ROWS, DIM = 1_000_000, 16
BATCH_SIZE, NUM_IDS = 1024, 26
NUM_BATCHES = 40
BLOCK_ROWS = 1024
ZIPF_EXPONENT = 1.05
SCATTER = 736_338_717
"""Coprime to the numbers of rows used here: ranks times it, modulo the rows, are a permutation."""
LEARNING_RATE, ACCUMULATOR = 0.05, 0.1
ONES = np.ones(DIM, np.float32)


def arrays(params: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Return `features`, (records, 26) ids as `params["ids"]` says, and `labels`, (records,) of 0 and 1."""
    rng = np.random.default_rng(3)
    shape = (NUM_BATCHES * BATCH_SIZE, NUM_IDS)
    ids = {"uniform": uniform_ids, "zipf": zipf_ids}[params["ids"]](rng, shape, NUM_ROWS)
    return {"features": ids, "labels": rng.integers(0, 2, len(ids)).astype(np.float32)}


def input_fn(params: Mapping[str, Any]) -> Dataset:
    """Read the records forever."""
    data = arrays(params)
    return Dataset(data["features"], data["labels"]).batch(BATCH_SIZE).repeat()


def model_fn(features: NDArray[Any], labels: NDArray[Any], mode: ModeKeys, params: Mapping[str, Any]) -> EstimatorSpec:
    """Return loss and hand-written gradients of a batch; `params` are those of the input."""
    bias = get_variable("bias", initializer=initializers.zeros)
    summed = embedding_lookup("items", features, NUM_ROWS, DIM, combiner="sum")
    loss, gradient = sigmoid_cross_entropy(labels, summed.sum(axis=-1) + bias)
    if mode != ModeKeys.TRAIN:
        return EstimatorSpec(mode, loss=loss)
    summary.scalar("clock", time.monotonic())
    values = gradient[:, None, None] * ONES  # one row for all ids of an example
    gradients = {"bias": gradient.sum(), "items": SparseGradient(features, values)}
    optimizer = Adagrad(learning_rate=LEARNING_RATE, initial_accumulator_value=ACCUMULATOR)
    return EstimatorSpec(mode, loss=loss, train_op=optimizer.apply_gradients(gradients))


def bare_step(params: Mapping[str, Any]) -> Callable[[], object]:
    """Return a function that does what no system can leave out: unique ids, their rows, gradient sums, row updates."""
    batches = arrays(params)["features"].reshape(NUM_BATCHES, -1)
    table = _BareTable()
    gradients = np.full((BATCH_SIZE, DIM), 1e-3, np.float32)
    number = 0

    def step() -> object:
        nonlocal number
        number = (number + 1) % NUM_BATCHES
        found = find_occurrences(batches[number])
        pulled = table.take(found.unique)
        table.update(found.unique, found.sum(gradients))
        return pulled

    return step


class _BareTable:
    """Weights and accumulators, a row of each side by side; a block of rows is updated in the processor's cache."""

    def __init__(self) -> None:
        memory = np.full(2 * NUM_ROWS * DIM, ACCUMULATOR, np.float32)
        views = memory, memory[DIM:]  # a row is at the same position of both
        record = np.dtype((np.void, DIM * memory.itemsize))  # scattered faster than rows
        self._parts = [view.reshape(-1, DIM) for view in views]
        self._records = [view.view(record) for view in views]
        self._weights, self._sums = np.empty((2, BLOCK_ROWS, DIM), np.float32)

    def take(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._parts[0].take(2 * ids, axis=0)

    def update(self, ids: NDArray[np.int64], gradients: NDArray[np.float32]) -> None:
        positions = 2 * ids
        for start in range(0, len(ids), BLOCK_ROWS):
            some, gradient = positions[start : start + BLOCK_ROWS], gradients[start : start + BLOCK_ROWS]
            weights, sums = self._weights[: len(some)], self._sums[: len(some)]
            for part, rows in zip(self._parts, (weights, sums), strict=True):
                part.take(some, axis=0, out=rows, mode="clip")
            sums += gradient * gradient
            gradient *= LEARNING_RATE
            gradient /= np.sqrt(sums)
            weights -= gradient
            for records, rows in zip(self._records, (weights, sums), strict=True):
                records.put(some, rows.reshape(-1).view(records.dtype), mode="clip")


def uniform_ids(rng: np.random.Generator, shape: tuple[int, ...], num_rows: int) -> NDArray[np.int64]:
    """Return ids of `num_rows` rows, each as frequent as the others."""
    return rng.integers(0, num_rows, shape)


def zipf_ids(rng: np.random.Generator, shape: tuple[int, ...], num_rows: int) -> NDArray[np.int64]:
    """Return ids of `num_rows` rows that follow the Zipf law."""
    shares = np.cumsum(np.arange(1, num_rows + 1, dtype=np.float64) ** -ZIPF_EXPONENT)
    ranks = np.searchsorted(shares, rng.random(shape) * shares[-1])
    ids: NDArray[np.int64] = ranks * SCATTER % num_rows
    return ids
