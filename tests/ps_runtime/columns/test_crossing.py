"""Crosses: ids of combinations of ids, from options to a trained model."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psflow import LinearRegressor, RunConfig
from psflow.ps_runtime.columns.crossing import Cross, CrossOptions, crossing_ids
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import ModelDirError, UsageError
from psflow.ps_runtime.optimizers import Ftrl

COLUMNS = [RawColumn("town", "string"), RawColumn("job", "string"), RawColumn("age", "float64")]
TABLE = pa.table({"town": ["a", "b", "a", "b"], "job": ["x", "x", "y", "y"], "age": [1.0, 2.0, 3.0, 4.0]})
OPTIONS = {"town": ColumnOptions(hash_buckets=1000), "age": ColumnOptions(buckets=[2.5])}


def learned(crosses: dict[str, CrossOptions], options: dict[str, ColumnOptions] = OPTIONS) -> Preprocessing:
    learner = Learner(COLUMNS, options, {}, seed=1, crosses=crosses)
    learner.update(TABLE)
    return learner.finish()


def test_each_combination_has_an_id_of_its_own_whatever_becomes_ids() -> None:
    made = learned(
        {"all": CrossOptions(["town", "job", "age"], 10**12, embedding=4), "two": CrossOptions(["job", "town"], 5)}
    )
    features = made.apply(TABLE)
    assert list(features) == ["town", "job", "age", "all", "two"]
    assert len(set(features["all"].tolist())) == 4
    assert features["two"].max() < 5
    assert features["all"].dtype == features["two"].dtype == np.int64
    [all_, two] = made.specs[-2:]
    assert (all_.name, all_.dtype, all_.shape, all_.num_ids, all_.embedding) == ("all", "int64", (), 10**12, 4)
    assert (two.num_ids, two.embedding) == (5, None)
    again = made.apply(TABLE.slice(2, 1))
    assert [again["all"][0], again["two"][0]] == [features["all"][2], features["two"][2]]


def test_a_part_of_the_features_is_computed_alike_of_the_columns_that_it_needs() -> None:
    made = learned({"two": CrossOptions(["job", "town"], 5)})
    whole = made.apply(TABLE)
    for names, kept, columns in (
        ({"two"}, ["town", "job", "two"], ["town", "job"]),
        ({"age"}, ["age"], ["age"]),
        ({"job", "two", "age"}, ["town", "job", "age", "two"], ["town", "job", "age"]),
    ):
        part = made.narrowed(names)
        found = part.apply(TABLE.select(columns))
        assert list(found) == kept == list(part.names)
        assert all(np.array_equal(found[name], whole[name]) for name in kept)
        assert [column.name for column in part.raw_columns] == columns


def test_ids_spread_evenly_and_are_the_same_for_ever() -> None:
    first, second = np.divmod(np.arange(100_000), 1000)
    ids = crossing_ids(Cross("c", ("a", "b"), 1000), {"a": first, "b": second})
    assert ids[:3].tolist() == [55, 654, 231]
    counts = np.bincount(ids, minlength=1000)
    assert np.sum((counts - 100) ** 2 / 100) == pytest.approx(999, abs=6 * np.sqrt(2 * 999)), "chi squared"
    turned = crossing_ids(Cross("c", ("b", "a"), 1000), {"a": first, "b": second})
    assert np.mean(turned == ids) < 0.01, "the order of the members counts"


def test_it_is_kept_as_plain_data_and_compared() -> None:
    made = learned({"c": CrossOptions(["town", "job"], 50, 3)})
    assert Preprocessing.from_facts(made.to_facts()) == made
    assert "c: town x job, hashed into 50 buckets" in made.lines()
    assert made.differences(learned({"c": CrossOptions(["town", "job"], 50, 3)})) == []
    assert made.differences(learned({"c": CrossOptions(["job", "town"], 60, 3)})) == [
        "cross 'c' has other columns: number 1 is 'job', expected 'town'",
        "cross 'c' has hash_buckets 60, expected 50",
    ]
    assert made.differences(learned({})) == ["cross 'c' is missing"]
    facts = made.to_facts()
    facts["crosses"][0]["members"] = ["town", "age_is_missing"]
    with pytest.raises(ValueError, match="crosses need categorical features, these are not: age_is_missing"):
        Preprocessing.from_facts(facts)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"columns": "town", "hash_buckets": 5}, "columns is 'town', expected a list of texts, such as ['town']"),
        ({"columns": ["town"], "hash_buckets": 5}, "columns is ('town',), expected a list of two or more"),
        ({"columns": ["town", "town"], "hash_buckets": 5}, "columns is ('town', 'town'), expected a list of two or"),
        ({"columns": ["town", 3], "hash_buckets": 5}, "columns[1] is 3, expected text"),
        ({"columns": ["town", "job"], "hash_buckets": 0}, "hash_buckets is 0, expected a whole number from 1 to"),
        ({"columns": ["town", "job"], "hash_buckets": 2**62}, "from 1 to 4,611,686,018,427,387,903"),
        ({"columns": ["town", "job"], "hash_buckets": True}, "hash_buckets is True, expected a whole number"),
        ({"columns": ["town", "job"], "hash_buckets": 5, "embedding": 0}, "embedding is 0, expected a whole number"),
        (
            {"columns": ["town", "job"], "hash_buckets": 5, "admit_after": 0},
            "admit_after is 0, expected a whole number",
        ),
        (
            {"columns": ["town", "job"], "hash_buckets": 5, "expire_after_steps": 0.5},
            "expire_after_steps is 0.5, expec",
        ),
    ],
)
def test_options_that_say_nothing_sensible(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        CrossOptions(**keys)
    assert fault in str(caught.value)


def test_members_and_names_that_cannot_be() -> None:
    with pytest.raises(UsageError) as caught:
        learned(
            {"job": CrossOptions(["town", "age"], 5), "c": CrossOptions(["town", "jop"], 5)},
            {"town": OPTIONS["town"]},
        )
    assert caught.value.faults == (
        "cross 'job' has the name of a feature; choose another",
        "cross 'job' has 'age', which is not categorical; set vocabulary, hash_buckets or buckets for it",
        "cross 'c' has 'jop', which is not a feature; did you mean 'job'?",
    )


def test_a_cross_has_the_name_of_nothing_else() -> None:
    columns = [*COLUMNS, RawColumn("w", "float64")]
    with pytest.raises(UsageError, match="cross 'w' has the name of a label, weight or key column; choose another"):
        Learner(columns, OPTIONS, {}, seed=1, weight="w", crosses={"w": CrossOptions(["town", "job"], 5)})


def test_a_cross_learns_what_its_members_cannot(tmp_path: Path) -> None:
    rows = [(a, b, 1.0 if a == b else -1.0) for a in "uvw" for b in "uvw"] * 20
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(f"{a},{b},{y}\n" for a, b, y in rows))
    given = {"path": str(tmp_path / "t.csv"), "label": "y"}
    losses = {}
    for name, crosses in (("plain", {}), ("crossed", {"a_x_b": CrossOptions(["a", "b"], 100_000)})):
        input_fn = partial(open_dataset, Csv(**given, crosses=crosses), batch_size=30, epochs=None)
        config = RunConfig(tf_random_seed=1, save_checkpoints_steps=10_000)
        model = LinearRegressor(optimizer=Ftrl(1.0), model_dir=str(tmp_path / name), config=config)
        model.train(input_fn, max_steps=60)
        losses[name] = model.evaluate(partial(open_dataset, Csv(**given), batch_size=30))["loss"]
    assert losses["plain"] > 0.5
    assert losses["crossed"] < 0.01
    changed = Csv(**given, crosses={"a_x_b": CrossOptions(["a", "b"], 90_000)})
    with pytest.raises(ModelDirError, match="training input: cross 'a_x_b' has hash_buckets 90000, expected 100000"):
        model.train(partial(open_dataset, changed, batch_size=30, epochs=None), max_steps=70)
