"""A pull from one table, in this process, beside a bare ``take`` of the same rows from the same memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.models.embedding import BATCH_SIZE, DIM, NUM_IDS
from benchmarks.rows import Row, Samples
from benchmarks.settings import Settings
from psflow import Adagrad
from psflow.ps_runtime.specs.variables import TableSpec
from psflow.ps_runtime.tables.table import Table
from psflow.ps_runtime.tables.table_rows import row_memory

__all__ = ["SIZES", "measure_pulls", "pull_and_take"]

SIZES = {"1e5": 100_000, "1e6": 1_000_000, "1e7": 10_000_000}
CASE = "pull/"
NUM_REPEATS = 50


def measure_pulls(settings: Settings) -> list[Row]:
    """Measure pulls from tables of several sizes."""
    wanted = [name for name in SIZES if settings.wants(CASE + name)]
    with threadpool_limits(limits=1):
        return [_measure(name, settings.pairs) for name in (wanted[:1] if settings.quick else wanted)]


def pull_and_take(num_rows: int, num_ids: int) -> tuple[Callable[[], NDArray[np.float32]], ...]:
    """Return a function that pulls, and one that takes the same rows; each returns them, always in the same array.

    All rows of the table exist but the first one: so a pull has to look for what is missing.
    """
    memory = np.empty(0, np.uint8)

    def allocate(num_rows: int, row_nbytes: int) -> NDArray[np.uint8]:
        nonlocal memory
        memory = row_memory(num_rows, row_nbytes)
        return memory

    spec = TableSpec("items", num_rows, DIM, "float32", 0, {"name": "uniform", "scale": 0.05}, seed=1)
    table = Table(spec, Adagrad(learning_rate=0.1), allocate=allocate)
    rng = np.random.default_rng(0)
    there = np.arange(1, num_rows)
    table.load(
        {
            "ids": there,
            "weights": rng.random((len(there), DIM), np.float32) + np.float32(1.0),
            "accumulator": np.ones((len(there), DIM), np.float32),
        }
    )
    ids = rng.integers(1, num_rows, num_ids)
    parts, places = memory.view(np.float32).reshape(-1, DIM), 2 * ids  # a row's accumulator follows its weights
    pulled, taken = np.empty((2, num_ids, DIM), np.float32)

    def pull() -> NDArray[np.float32]:
        table.pull(ids, pulled)
        return pulled

    def take() -> NDArray[np.float32]:
        parts.take(places, axis=0, out=taken, mode="clip")
        return taken

    return pull, take


def _measure(name: str, num_pairs: int) -> Row:
    pull, take = pull_and_take(SIZES[name], BATCH_SIZE * NUM_IDS)
    rates: dict[Callable[[], NDArray[np.float32]], list[float]] = {pull: [], take: []}
    for function in (pull, take):  # the first of each touch what they need
        function()
    for _ in range(num_pairs):
        for function, measured in rates.items():
            started = time.thread_time()
            for _ in range(NUM_REPEATS):
                function()
            measured.append(NUM_REPEATS / (time.thread_time() - started))
    samples = [Samples(of_one, [1 / rate for rate in of_one]) for of_one in rates.values()]
    return Row.of(CASE + name, "pulls/s", *samples)
