"""Models with sparse tables, trained in one process: manually and by autograd, interrupted, in a pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import autograd.numpy as anp
import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import InputError, NanGradientError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.model.calls.scope import get_or_create_global_step, get_variable
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.export.exporters import BestExporter
from psflow.ps_runtime.model.hooks.base import SessionRunArgs, SessionRunHook
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.optimizers import Adam
from psflow.ps_runtime.roles.events import Evaluation
from tests.ps_runtime.estimator.ratings import DIM, ITEMS, LABELS, NUM_ITEMS, SGD, ratings, records
from tests.ps_runtime.estimator.regression import FailAt


def shuffled():
    return replace(records(), shuffle_seed=5).repeat()


def traced(features, labels, mode):
    if mode != "train":
        return ratings(features, labels, mode)
    items = embedding_lookup("items", features["items"], NUM_ITEMS, DIM, combiner="sum", scale=0.5)
    loss = anp.mean((anp.sum(items, axis=1) + get_variable("bias") - labels) ** 2)
    return EstimatorSpec(mode, loss=loss, train_op=SGD.minimize(loss))


def derived(features, labels, mode):
    """Look up ids that are unknown before the call, in two tables, one of them twice."""
    first = embedding_lookup("items", features["items"][:, 0] * 3, 3 * NUM_ITEMS, DIM)
    second = embedding_lookup("items", features["items"][:, 1] + 1, 3 * NUM_ITEMS, DIM)
    bias = embedding_lookup("biases", features["items"], NUM_ITEMS, 1, combiner="mean", initializer="zeros")
    loss = anp.mean((anp.sum(first * second, axis=1) + bias[:, 0] - labels) ** 2)
    return EstimatorSpec(mode, loss=loss, train_op=Adam(learning_rate=0.05).minimize(loss))


def tables_of(estimator, step):
    """Return all that a checkpoint knows of its tables, slots and all."""
    with CheckpointReader.pinned(CheckpointStore(estimator.model_dir), step, "test") as reader:
        model = reader.manifest.model
        found = {}
        for table in model.tables:
            slots = ("m", "v") if model.optimizers[table.optimizer]["name"] == "Adam" else ()
            blocks = list(reader.table_rows(table, slots))
            found[table.name] = [{name: array.tobytes() for name, array in block.items()} for block in blocks]
        return found


def test_training_moves_the_rows_of_its_batches_and_no_others(make):
    estimator = make(model_fn=ratings)
    losses = []
    for max_steps in (1, 30):
        estimator.train(shuffled, max_steps=max_steps)
        losses.append(estimator.evaluate(records)["loss"])
    assert losses[1] < 0.5 * losses[0]
    ids = np.arange(NUM_ITEMS)
    built = estimator.caller.build(records().features, LABELS, "train", estimator.config.tf_random_seed)
    first = ModelValues.initial(built.model, {}).rows(built.model.tables[0], ids)
    has_moved = (estimator.get_table_rows("items", ids) != first).any(axis=1)
    assert np.flatnonzero(has_moved).tolist() == np.unique(ITEMS).tolist()


def test_autograd_trains_what_gradients_by_hand_train(make):
    by_hand, by_autograd = make("hand", ratings), make("auto", traced)
    for estimator in (by_hand, by_autograd):
        estimator.train(shuffled, max_steps=20)
    for name in ("items", "bias"):
        found, expected = (estimator.get_variable_value(name) for estimator in (by_autograd, by_hand))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model_fn", [ratings, derived])
def test_a_resumed_job_ends_with_the_same_bits(make, model_fn):
    whole, broken = make("whole", model_fn), make("broken", model_fn)
    whole.train(shuffled, max_steps=15)
    with pytest.raises(ZeroDivisionError):
        broken.train(shuffled, [FailAt(8)], max_steps=15)
    broken.train(shuffled, max_steps=15)
    assert tables_of(broken, 15) == tables_of(whole, 15)


def partly_derived(features, labels, mode):
    items = embedding_lookup("items", features["items"], NUM_ITEMS, DIM)
    others = embedding_lookup("items", features["items"] // 2, NUM_ITEMS, DIM)
    loss = anp.mean((anp.sum(items * others, axis=(1, 2)) - labels) ** 2)
    return EstimatorSpec(mode, loss=loss, train_op=SGD.minimize(loss))


def derived_later(features, labels, mode):
    ids = features["items"] if get_or_create_global_step() < 3 else features["items"] // 2
    items = embedding_lookup("items", ids, NUM_ITEMS, DIM)
    loss = anp.mean((anp.sum(items, axis=(1, 2)) - labels) ** 2)
    return EstimatorSpec(mode, loss=loss, train_op=SGD.minimize(loss))


@pytest.mark.parametrize("model_fn", [ratings, derived, partly_derived, derived_later])
def test_a_pipeline_trains_tables(make, model_fn):
    estimator = make(model_fn=model_fn, pipeline_depth=1)
    estimator.train(shuffled, max_steps=30)
    assert estimator.latest_checkpoint().endswith("step_00000030")
    names = estimator.get_variable_names()
    assert all(np.isfinite(estimator.get_variable_value(name)).all() for name in names)


def test_a_pipeline_learns(make):
    estimator = make(model_fn=ratings, pipeline_depth=1)
    losses = []
    for max_steps in (1, 30):
        estimator.train(shuffled, max_steps=max_steps)
        losses.append(estimator.evaluate(records)["loss"])
    assert losses[1] < 0.5 * losses[0]


def test_a_job_evaluates_and_exports_beside_training(make, tmp_path):
    class Writer:
        def write(self, directory, bundle):
            assert list(bundle.values.tables) == ["items"]
            (tmp_path / "written").touch()
            Path(directory).mkdir()

    events = []
    eval_spec = EvalSpec(records, None, exporters=BestExporter("best"), start_delay_secs=0, throttle_secs=0)
    with Attempt(make(model_fn=ratings), TrainSpec(shuffled, 12), eval_spec) as attempt:
        run_local(attempt.job(Writer()), events.append, attempt.check)
    assert [event.step for event in events if isinstance(event, Evaluation)][-1] == 12
    assert (tmp_path / "written").exists()


class Fetch(SessionRunHook):
    def before_run(self, run_context):
        return SessionRunArgs("items")


def test_a_hook_that_fetches_a_table_is_told_what_to_do(make):
    with pytest.raises(UsageError, match="'items', which this step does not have; 'items' is a table"):
        make(model_fn=ratings).train(shuffled, [Fetch()], max_steps=1)


def test_an_id_that_is_out_of_range_ends_training_with_its_place(make):
    def model_fn(features, labels, mode):
        ids = features["items"] + (NUM_ITEMS if get_variable("w", initializer=zeros) else 0)
        embedding_lookup("items", ids, NUM_ITEMS, DIM)
        return EstimatorSpec(mode, loss=0.0, train_op=SGD.apply_gradients({"w": np.float32(1)}))

    with pytest.raises(InputError, match=r"table 'items' has ids in \[0, 1000\), got \d+ at position 0, 0"):
        make(model_fn=model_fn).train(shuffled, max_steps=5)


@pytest.mark.parametrize("pipeline_depth", [0, 1])
def test_a_gradient_of_a_row_that_is_not_finite_is_named_by_its_id(make, pipeline_depth):
    def model_fn(features, labels, mode):
        spec = ratings(features, labels, mode)
        given = spec.train_op.gradients["items"]
        values = np.where(given.ids[..., np.newaxis] == ITEMS[6, 1], np.nan, given.values)
        gradients = {**spec.train_op.gradients, "items": SparseGradient(given.ids, values)}
        return replace(spec, train_op=SGD.apply_gradients(gradients))

    estimator = make(model_fn=model_fn, save_checkpoints_steps=1, pipeline_depth=pipeline_depth)
    with pytest.raises(NanGradientError, match=rf"^chief-0 computed a gradient of row {ITEMS[6, 1]} of table 'items'"):
        estimator.train(records)
    assert np.isfinite(estimator.get_table_rows("items", np.arange(NUM_ITEMS))).all()
