"""Maximum numbers of rows: a ps has addresses for them twice, and for no more."""

from __future__ import annotations

import pytest

from psflow.ps_runtime.optimizers import Adam, GradientDescent
from psflow.ps_runtime.tables.bounds import MAX_ROWS, size_faults
from psflow.ps_runtime.tables.table import Table

SGD, ADAM = GradientDescent(0.1), Adam(0.1)


@pytest.mark.parametrize(
    ("facts", "rules", "num_tables", "nbytes", "most"),
    [
        ({"dim": 1}, [SGD], 1, 5, MAX_ROWS),
        ({"dim": 1, "optimizer": None}, [], 1, 5, MAX_ROWS),
        ({"dim": 128}, [SGD], 1, 513, 2**45 // 513),
        ({"dim": 128, "dtype": "float64"}, [SGD], 1, 1025, 2**45 // 1025),
        ({"dim": 128, "optimizer": 1}, [SGD, ADAM], 1, 128 * 12 + 1, 2**45 // (128 * 12 + 1)),
        ({"dim": 128, "admit_after": 256}, [SGD], 1, 514, 2**45 // 514),
        ({"dim": 128, "expire_after_steps": 9}, [SGD], 1, 521, 2**45 // 521),
        ({"dim": 128}, [SGD], 3, 513, 2**45 // 3 // 513),
    ],
)
def test_a_ps_finds_addresses_for_the_most_rows_and_their_copy(make_spec, facts, rules, num_tables, nbytes, most):
    allowed, refused = (make_spec(**facts, num_rows=num_rows) for num_rows in (most, most + 1))
    others = [make_spec(name=f"other_{i}") for i in range(num_tables - 1)]
    assert list(size_faults([allowed, *others], rules)) == []
    rule = None if allowed.optimizer is None else rules[allowed.optimizer]
    both = [Table(allowed, rule) for _ in range(2)]
    assert [table.num_created for table in both] == [0, 0]
    beside = f" and the model has {num_tables} tables" if num_tables > 1 else ""
    assert list(size_faults([refused, *others], rules)) == [
        f"table 'items' has {most + 1:,} rows, at most {most:,} are possible if a row takes {nbytes:,} bytes"
        f"{beside}; use fewer ids (num_rows, num_ids or hash_buckets)"
    ]


def test_every_table_that_is_too_large_is_reported(make_spec):
    tables = [make_spec(name=name, num_rows=num_rows) for name, num_rows in (("a", 2**58), ("b", 9), ("c", 2**62))]
    assert [fault.split(" has ")[0] for fault in size_faults(tables, [SGD])] == ["table 'a'", "table 'c'"]
