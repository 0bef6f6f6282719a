"""A million random operations leave a table as they leave a dict of rows, bit for bit.

An operation pulls or pushes one row; between them rows expire, and the table moves into a copy of itself or, by way of
its tensors, onto another number of shards.
"""

import numpy as np
import pytest

from psflow.ps_runtime.optimizers import Adagrad, Adam, GradientDescent, Momentum, RMSProp

NUM_OPERATIONS = 200_000
CASES = [
    (GradientDescent(learning_rate=0.1), {}),
    (Adagrad(learning_rate=0.05), {"num_rows": 60_000, "dim": 16, "expire_after_steps": 40}),
    (Momentum(learning_rate=0.01), {"admit_after": 3, "dtype": "float64"}),
    (Adam(), {"admit_after": 2, "expire_after_steps": 25, "initializer": {"name": "normal", "scale": 0.1}}),
    (RMSProp(learning_rate=0.01, momentum=0.5), {"dim": 1, "expire_after_steps": 1}),
]


def some_ids(rng, num_rows):
    """Few or many ids, of a small part of the table or of all of it, the last one often among them."""
    stop = int(rng.choice([50, 700, num_rows]))
    ids = rng.integers(num_rows - stop, num_rows, int(rng.integers(0, 400)))
    return ids if rng.random() < 0.5 else np.append(ids, num_rows - 1)


@pytest.mark.parametrize(("rule", "facts"), CASES, ids=[type(rule).__name__ for rule, _ in CASES])
def test_random_operations_leave_the_same_table(make_spec, make_shards, make_dict_table, rule, facts):
    spec = make_spec(**{"num_rows": 3_000} | facts)
    table, expected = make_shards(spec, rule, 2), make_dict_table(spec, rule)
    spare = table.copy()
    rng, num_operations, num_updates, num_expired = np.random.default_rng(7), 0, 0, 0
    while num_operations < NUM_OPERATIONS:
        ids = some_ids(rng, spec.num_rows)
        match rng.choice(5, p=[0.4, 0.5, 0.05, 0.03, 0.02]):
            case 0:
                np.testing.assert_array_equal(table.pull(ids), expected.pull(ids))
            case 1:
                ids, num_updates = rng.permutation(np.unique(ids)), num_updates + 1
                gradients = rng.normal(size=(len(ids), spec.dim)).astype(spec.dtype)
                rate = rule.learning_rate_at(num_updates)
                table.push(ids, gradients, rate, num_updates)
                expected.push(ids, gradients, rate, num_updates)
            case 2:
                expired = table.expire(num_updates)
                assert expired == expected.expire(num_updates)
                num_expired += expired
            case 3:
                table, spare = table.copy(into=spare), table
            case 4:
                table = table.on(int(rng.integers(1, 5)))
                spare = table.copy()
        assert table.num_created == len(expected.rows)
        num_operations += len(ids)
    all_ids = np.arange(spec.num_rows)
    np.testing.assert_array_equal(table.pull(all_ids), expected.pull(all_ids))
    saved = table.on(1).tables[0].tensors()
    assert saved["ids"].tolist() == sorted(expected.rows)
    rows = np.stack([expected.rows[i] for i in sorted(expected.rows)], axis=1)
    for name, values in zip(("weights", *rule.slot_names), rows, strict=True):
        np.testing.assert_array_equal(saved[name], values)
    assert (num_expired > 0) == (spec.expire_after_steps is not None)
