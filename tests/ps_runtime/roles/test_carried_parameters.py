"""Parameters that come with a ticket stay what they are, whatever else a ps answers before the step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    RunConfig,
    SparseGradient,
    TrainSpec,
    WireFormat,
    embedding_lookup,
    get_variable,
    initializers,
)
from psflow.ps_runtime.estimator.attempt import Attempt

SIZE, NUM_STEPS = 64, 50
ONES = np.ones(SIZE, np.float32)


class Constant:
    """A model whose variable is 1 at all times, since its gradient is 0; notes what it sees."""

    def __init__(self, *, has_table: bool) -> None:
        self.has_table = has_table
        self.seen: list[Any] = []

    def __call__(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        values = get_variable("values", (SIZE,), initializer=initializers.constant(1.0))
        self.seen.append(values.copy())
        gradients: dict[str, Any] = {"values": np.zeros(SIZE, np.float32)}
        if self.has_table:
            items = features["items"]
            embedding_lookup("items", items, 1000, 3, combiner="sum")
            gradients["items"] = SparseGradient(items, np.zeros((*items.shape, 3), np.float32))
        return EstimatorSpec(mode, loss=np.float32(0), train_op=GradientDescent(0.1).apply_gradients(gradients))


def stream() -> Iterator[Any]:
    for index in range(2 * NUM_STEPS):
        yield {"items": np.full((4, 30), index, np.int64)}, np.full(4, index, np.float32)


def dataset() -> Dataset:
    items = np.arange(240, dtype=np.int64).reshape(8, 30)
    return Dataset({"items": items}, np.ones(8, np.float32)).batch(4).repeat()


@pytest.mark.parametrize("parameters", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("input_fn", "has_table"),
    [(dataset, False), (stream, False), (dataset, True)],
    ids=["data set", "stream", "table"],
)
def test_a_variable_that_does_not_change_is_seen_so_in_every_step(
    roles: Any, tmp_path: Path, input_fn: Any, has_table: bool, parameters: Any
) -> None:
    model = Constant(has_table=has_table)
    config = RunConfig(tf_random_seed=1, wire=WireFormat(parameters=parameters))
    with Attempt(
        Estimator(model, str(tmp_path), config), TrainSpec(input_fn, NUM_STEPS), None, transport="tcp"
    ) as attempt:
        roles.train(attempt.job())
    assert len(model.seen) >= NUM_STEPS
    for values in model.seen[-NUM_STEPS:]:
        np.testing.assert_array_equal(values, ONES)
