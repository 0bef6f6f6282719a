"""Every optimizer does to rows what it does to dense arrays."""

import numpy as np
import pytest

from psflow.ps_runtime.optimizers import OPTIMIZERS, Adagrad, Ftrl, GradientDescent, UpdateOperands

NUM_ROWS, DIM, NUM_UPDATES = 3_000, 5, 30


class Dense:
    """The whole table as dense arrays."""

    def __init__(self, rule, start):
        self.rule = rule
        self.weights = start.copy()
        self.slots = {name: np.full_like(start, rule.initial_slot(name)) for name in rule.slot_names}

    def update(self, which, gradients, learning_rate, num_updates):
        """Give the rows `which`, gathered into dense arrays of their own, to the optimizer."""
        parts = {name: slot[which] for name, slot in self.slots.items()}
        weights = self.weights[which]
        self.rule.update(
            UpdateOperands(
                weights.reshape(-1),
                gradients.reshape(-1),
                {name: part.reshape(-1) for name, part in parts.items()},
                np.full(weights.size, np.nan, weights.dtype),
                learning_rate=learning_rate,
                num_updates=num_updates,
            )
        )
        self.weights[which] = weights
        for name, part in parts.items():
            self.slots[name][which] = part


def pushes(dtype):
    """Yield ids and gradients: more rows than are updated at a time, and few."""
    rng = np.random.default_rng(4)
    for count in range(NUM_UPDATES):
        ids = rng.permutation(NUM_ROWS)[: rng.integers(1, 2_500 if count % 2 else 20)]
        yield ids, rng.normal(size=(len(ids), DIM)).astype(dtype)


def test_the_laws_cover_the_whole_registry(rules):
    assert {type(rule) for rule in rules} > set(OPTIMIZERS.values())  # and one of a user


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_are_updated_as_dense_arrays_of_the_touched_rows_alone(make_spec, make_shards, rule, dtype):
    spec = make_spec(num_rows=NUM_ROWS, dim=DIM, dtype=dtype)
    table = make_shards(spec, rule, 2)
    dense = Dense(rule, table.pull(np.arange(NUM_ROWS)))
    for count, (ids, gradients) in enumerate(pushes(dtype), start=1):
        table.push(ids, gradients, 0.1 / count, count)
        dense.update(ids, gradients.copy(), 0.1 / count, count)
    tensors = table.on(1).tables[0].tensors()
    np.testing.assert_array_equal(tensors["weights"], dense.weights[tensors["ids"]])
    for name, slot in dense.slots.items():
        np.testing.assert_array_equal(tensors[name], slot[tensors["ids"]])
    np.testing.assert_array_equal(table.pull(np.arange(NUM_ROWS)), dense.weights)


@pytest.mark.parametrize(
    "rule",
    [GradientDescent(learning_rate=0.1), Adagrad(learning_rate=0.1), Ftrl(learning_rate=0.1)],
    ids=lambda rule: type(rule).__name__,
)
def test_where_a_zero_gradient_changes_nothing_rows_are_updated_as_the_whole_table(make_spec, make_shards, rule):
    spec = make_spec(num_rows=NUM_ROWS, dim=DIM, initializer={"name": "zeros"})
    table, everywhere = make_shards(spec, rule), np.arange(NUM_ROWS)
    dense = Dense(rule, table.pull(everywhere))
    for count, (ids, gradients) in enumerate(pushes("float32"), start=1):
        whole = np.zeros((NUM_ROWS, DIM), np.float32)
        whole[ids] = gradients
        table.push(ids, gradients, 0.1, count)
        dense.update(everywhere, whole, 0.1, count)
    np.testing.assert_array_equal(table.pull(everywhere), dense.weights)
