"""Checkpoints with sparse tables, evaluated, predicted from and looked at."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.records import write_finished
from psflow.ps_runtime.errors import BrokenPeerError, InputError, ModelFnError, UsageError
from psflow.ps_runtime.estimator import checkpoint_values
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.planning import plan_job
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.export.exporters import BestExporter, LatestExporter
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.evaluator import run_evaluator
from psflow.ps_runtime.roles.events import Export
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.ps_runtime.estimator.ratings import DIM, ITEMS, LABELS, NUM_ITEMS, ratings, records, save_checkpoint


@pytest.fixture
def estimator(make):
    made = make(model_fn=ratings)
    os.mkdir(made.model_dir)
    return made


def expected_rows(estimator, built, **pushed):
    """Return the whole table: first values, and those rows moved that were pushed."""
    whole = ModelValues.initial(built.model, {}).rows(built.model.tables[0], np.arange(NUM_ITEMS))
    for name, distance in pushed.items():
        whole[int(name[1:])] += np.float32(distance)
    return whole


def test_predicts_and_evaluates_with_rows_that_were_trained_and_rows_that_were_not(estimator):
    pushed = {f"i{ITEMS[0, 0]}": 0.5, f"i{ITEMS[3, 1]}": -2.0}
    whole = expected_rows(estimator, save_checkpoint(estimator, 5, **pushed), **pushed)
    expected = whole[ITEMS].sum(axis=(1, 2)) + 0.25
    found = [prediction["rating"] for prediction in estimator.predict(records)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    metrics = estimator.evaluate(records)
    assert metrics["global_step"] == 5
    assert metrics["mae"] == pytest.approx(np.abs(expected - LABELS).mean(), rel=1e-5)


def test_a_small_table_is_a_variable_to_look_at(estimator):
    built = save_checkpoint(estimator, 5, i7=0.5, i998=1.5)
    assert estimator.get_variable_names() == ["bias", "global_step", "items"]
    np.testing.assert_array_equal(
        estimator.get_variable_value("items"), expected_rows(estimator, built, i7=0.5, i998=1.5)
    )
    assert estimator.get_variable_value("bias") == 0.25
    with pytest.raises(UsageError, match="there is no variable 'item'; did you mean 'items'"):
        estimator.get_variable_value("item")


def test_of_a_large_table_rows_are_looked_at(estimator, monkeypatch):
    whole = expected_rows(estimator, save_checkpoint(estimator, 5, i7=0.5), i7=0.5)
    monkeypatch.setattr(checkpoint_values, "MAX_WHOLE_TABLE_BYTES", NUM_ITEMS * DIM * 4 - 1)
    with pytest.raises(UsageError, match=r"1000 rows of 12 bytes, .*estimator.get_table_rows\('items', ids\)"):
        estimator.get_variable_value("items")
    ids = np.array([[7, 0], [999, 7]], np.int32)
    np.testing.assert_array_equal(estimator.get_table_rows("items", ids), whole[ids])
    np.testing.assert_array_equal(estimator.get_table_rows("items", 7), whole[7])


@pytest.mark.parametrize(
    ("name", "ids", "said"),
    [
        ("itmes", [1], "there is no table 'itmes'; did you mean 'items'"),
        ("bias", [1], "there is no table 'bias'"),
        ("items", [1.0], "table 'items': expected integer ids, got float64"),
        ("items", [-1], r"table 'items' has ids in \[0, 1000\), got -1 at position 0"),
    ],
)
def test_refuses_rows_that_are_not_there(estimator, name, ids, said):
    save_checkpoint(estimator, 5)
    with pytest.raises((UsageError, InputError), match=said):
        estimator.get_table_rows(name, ids)


class Writer:
    def __init__(self):
        self.bundles = []

    def write(self, directory, bundle):
        self.bundles.append(bundle)
        Path(directory).mkdir()


def test_the_evaluator_evaluates_and_exports_tables(estimator):
    for step in (5, 10):
        save_checkpoint(estimator, step, i7=step / 10)
    eval_spec = EvalSpec(records, None, exporters=LatestExporter("latest"), start_delay_secs=0, throttle_secs=0)
    writer, events = Writer(), []
    with Attempt(estimator, TrainSpec(records, 20), eval_spec) as attempt:
        write_finished(estimator.model_dir, 10, "all steps are done")
        context = RoleContext(RoleId(Role.EVALUATOR, 0), 1, lambda: None, events.append)

        def nobody(timeout_secs):
            raise BrokenPeerError("ps-0", "nobody listens")

        run_evaluator(attempt.job(writer), context, [nobody])
    assert [event.step for event in events if isinstance(event, Export)] == [5, 10]
    rows = [bundle.values.rows(bundle.values.tables["items"].spec, np.array([7])) for bundle in writer.bundles]
    np.testing.assert_allclose(rows[1] - rows[0], 0.5, rtol=1e-6)
    assert writer.bundles[1].metrics["mae"] == estimator.evaluate(records)["mae"]


# What is found out before anything starts


def plan(model_fn, **spec):
    eval_specs = [EvalSpec(records, None, **spec)]
    return plan_job(
        ModelCaller(model_fn, {}, None),
        TrainSpec(records),
        eval_specs,
        1,
        1,
        lambda labels, where, schema: None,
        KeptInputs("nowhere"),
    )


def test_the_plan_knows_the_tables_and_exporters_may_compare():
    [table] = plan(ratings, exporters=BestExporter("best")).model.tables
    assert (table.name, table.num_rows, table.dim, table.optimizer) == ("items", NUM_ITEMS, DIM, 0)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"name": "other"}, "uses table 'other' in eval but not in train$"),
        (
            {"name": "items", "num_rows": NUM_ITEMS + 1},
            f"uses a different table 'items' in eval than in train: num_rows {NUM_ITEMS + 1}, expected {NUM_ITEMS}$",
        ),
    ],
)
def test_an_evaluation_with_other_tables_is_refused(asked, words):
    def model_fn(features, labels, mode):
        if mode == "train":
            return ratings(features, labels, mode)
        embedding_lookup(**{"ids": features["items"], "num_rows": NUM_ITEMS, "dim": DIM, "scale": 0.5} | asked)
        return EstimatorSpec(mode, loss=1.0)

    with pytest.raises(ModelFnError, match=words):
        plan(model_fn)


def test_a_model_dir_of_another_table_is_refused(estimator, make):
    built = save_checkpoint(estimator, 5)
    other = dataclasses.replace(built.model.tables[0], seed=3)
    differences = built.model.differences(dataclasses.replace(built.model, tables=(other,)))
    assert differences == [
        "table 'items' has another seed, so its rows would start with other values; "
        "set tf_random_seed to its earlier value"
    ]
    with pytest.raises(UsageError, match="holds checkpoints of another model") as caught:
        Attempt(make(model_fn=ratings, tf_random_seed=2), TrainSpec(records, 20), None)
    assert list(caught.value.faults[1:]) == differences
