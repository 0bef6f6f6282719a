"""Jobs with sparse tables over real sockets: the same rows as in one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.ps_runtime.estimator.ratings import ITEMS, NUM_ITEMS, SGD, ratings, records
from tests.ps_runtime.estimator.regression import FailAt


@pytest.fixture
def make(tmp_path):
    def make_estimator(name="model", **config):
        given = {"tf_random_seed": 1, "save_checkpoints_steps": 5} | config
        return Estimator(ratings, str(tmp_path / name), RunConfig(**given))

    return make_estimator


def shuffled():
    return replace(records(), shuffle_seed=5).repeat()


def train(roles, estimator, max_steps=12, **size):
    with Attempt(estimator, TrainSpec(shuffled, max_steps), None, **size) as attempt:
        return roles.train(attempt.job())


def values_of(estimator):
    return {name: estimator.get_variable_value(name).tobytes() for name in estimator.get_variable_names()}


@pytest.fixture
def expected(make):
    return values_of(make("here").train(shuffled, max_steps=12))


@pytest.mark.parametrize("num_ps", [1, 2, 3])
@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_sockets_and_shards_change_no_bit(roles, make, expected, transport, num_ps):
    there = make("there")
    train(roles, there, num_ps=num_ps, transport=transport)
    assert values_of(there) == expected


def test_an_interrupted_job_goes_on_with_the_same_bits_on_another_number_of_ps(roles, make, expected):
    there = make("there")
    with Attempt(there, TrainSpec(shuffled, 12, [FailAt(8)]), None, num_ps=3) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        with pytest.raises(ZeroDivisionError, match="as planned"):
            run_chief(job, roles.context(job, Role.CHIEF), connect_functions)
        roles.join()
    roles.stop.clear()
    train(roles, there, num_ps=2)
    assert values_of(there) == expected


@pytest.mark.parametrize("pipeline_depth", [0, 1])
def test_several_replicas_train_the_rows_of_the_data(roles, make, pipeline_depth):
    estimator = make(pipeline_depth=pipeline_depth)
    start = make("start").train(shuffled, max_steps=1)
    train(roles, estimator, 40, num_workers=2, num_ps=2)
    assert estimator.evaluate(records)["loss"] < 0.5 * start.evaluate(records)["loss"]
    untouched = np.setdiff1d(np.arange(NUM_ITEMS), ITEMS)
    rows = [which.get_table_rows("items", untouched) for which in (estimator, start)]
    np.testing.assert_array_equal(*rows)


def large_batches():
    """Give a stream of batches too large for a socket alone; the label of an id is its negative."""
    rng = np.random.default_rng(1)
    for _ in range(6):
        ids = rng.permutation(5000)[:2000]
        yield ids, -ids


def two_tables(features, labels, mode):
    gradients = {}
    for name in ("first", "second"):
        rows = embedding_lookup(name, features, 5000, 4, initializer="zeros")
        gradients[name] = SparseGradient(features, np.ones_like(rows))
    assert np.array_equal(features, -labels)
    return EstimatorSpec(mode, loss=0.0, train_op=SGD.apply_gradients(gradients))


@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_rows_leave_the_batch_of_a_stream_alone(roles, tmp_path, transport):
    estimator = Estimator(two_tables, str(tmp_path), RunConfig(tf_random_seed=1))
    with Attempt(estimator, TrainSpec(large_batches, 5), None, transport=transport) as attempt:
        roles.train(attempt.job())
