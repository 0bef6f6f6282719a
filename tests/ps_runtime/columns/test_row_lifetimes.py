"""Lifetimes of the rows of ids: from the options of columns and crosses into the learned preprocessing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.crossing import CrossOptions
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.row_lifetime import RowLifetime, lifetime_faults
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

COLUMNS = [RawColumn("town", "string"), RawColumn("job", "string"), RawColumn("age", "float64")]
TABLE = pa.table({"town": ["a", "b"], "job": ["x", "y"], "age": [1.0, 3.0]})
OPTIONS = {
    "town": ColumnOptions(hash_buckets=5000, admit_after=2),
    "job": ColumnOptions(expire_after_steps=100),
    "age": ColumnOptions(buckets=[2.5], admit_after=3, expire_after_steps=7),
}
CROSSES = {"c": CrossOptions(["town", "job"], 9000, admit_after=4, expire_after_steps=8)}


def learned() -> Preprocessing:
    learner = Learner(COLUMNS, OPTIONS, {}, seed=1, crosses=CROSSES)
    learner.update(TABLE)
    return learner.finish()


def test_each_feature_of_ids_has_that_of_its_options() -> None:
    assert {spec.name: spec.lifetime for spec in learned().specs} == {
        "town": RowLifetime(2),
        "job": RowLifetime(1, 100),
        "age": RowLifetime(3, 7),
        "c": RowLifetime(4, 8),
    }


def test_a_plan_shows_it() -> None:
    assert learned().lines() == [
        "town: strings hashed into 5,000 buckets, admit_after 2",
        "job: 2 categories, expire_after_steps 100; the most frequent is 'x'",
        "age: 2 buckets, edges 2.5, admit_after 3, expire_after_steps 7",
        "c: town x job, hashed into 9,000 buckets, admit_after 4, expire_after_steps 8",
    ]


def test_it_is_kept_as_plain_data() -> None:
    made = learned()
    assert Preprocessing.from_facts(made.to_facts()) == made
    word = ArraySpec("word", "int64", (), 5000, 0, RowLifetime(3, 7))
    assert InputSchema.from_facts(InputSchema((word,)).to_facts()) == InputSchema((word,))


@pytest.mark.parametrize(
    "facts",
    [
        {"admit_after": 0, "expire_after_steps": None},
        {"admit_after": 1, "expire_after_steps": 0},
        {"admit_after": 2**62, "expire_after_steps": None},
    ],
)
def test_plain_data_that_are_none_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected a whole number >= 1"):
        RowLifetime.from_facts(facts)


@pytest.mark.parametrize(("count", "is_fault"), [(2**62 - 1, False), (2**62, True), (0, True)])
def test_a_count_has_a_bound(count: int, is_fault: bool) -> None:
    assert bool(list(lifetime_faults(count, None))) is is_fault
    assert bool(list(lifetime_faults(1, count))) is is_fault
