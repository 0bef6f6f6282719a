"""Whole jobs with tables, under each consistency, with and without a pipeline."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.calls.scope import get_variable
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.lookups import SparseGradient
from psflow.ps_runtime.model.spec import EstimatorSpec
from psflow.ps_runtime.model.training import TrainSpec
from psflow.ps_runtime.optimizers.adaptive import Adagrad
from psflow.ps_runtime.optimizers.gradient_descent import GradientDescent
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Hogwild, Sync
from psflow.ps_runtime.specs.run_config import RunConfig

NUM_IDS, DIM, NUM_RECORDS, BATCH_SIZE = 37, 4, 192, 8
RNG = np.random.default_rng(5)
IDS = RNG.integers(0, NUM_IDS, (NUM_RECORDS, 3))
LABELS = (IDS[:, 0] % 2).astype(np.float32)


def input_fn():
    return Dataset({"ids": IDS}, LABELS).shuffle(len(IDS), seed=3).batch(BATCH_SIZE).repeat()


def likes(features, labels, mode, params):
    """A row for each id, weighed and squashed; gradients manually."""
    ids = features["ids"] if params.get("as_given", True) else (features["ids"] + 1) % NUM_IDS
    rows = embedding_lookup("items", ids, NUM_IDS, DIM)
    weights = get_variable("weights", (DIM,))
    summed = rows.sum(axis=1)
    error = 1 / (1 + np.exp(-(summed @ weights))) - labels
    delta = (error / len(labels)).astype(np.float32)
    gradients = {
        "items": SparseGradient(ids, np.broadcast_to((delta[:, None] * weights)[:, None, :], rows.shape)),
        "weights": summed.T @ delta,
    }
    loss = float(np.mean(error**2))
    return EstimatorSpec(mode=mode, loss=loss, train_op=Adagrad(learning_rate=0.1).apply_gradients(gradients))


@pytest.fixture
def train(roles, tmp_path):
    def run(name="model", params=None, max_steps=30, seed=1, num_workers=0, num_ps=1, transport="auto", **config):
        run_config = RunConfig(tf_random_seed=seed, save_checkpoints_steps=20, **config)
        estimator = Estimator(likes, str(tmp_path / name), run_config, params or {})
        size = {"num_workers": num_workers, "num_ps": num_ps, "transport": transport}
        with Attempt(estimator, TrainSpec(input_fn, max_steps), None, **size) as attempt:
            reports = roles.train(attempt.job())
        assert {report["exit"] for report in reports.values()} == {"finished"}
        return estimator, reports["chief-0"]["statistics"]

    return run


def values_of(estimator, step):
    store = CheckpointStore(estimator.model_dir)
    with CheckpointReader.pinned(store, step, "test") as reader:
        (spec,) = reader.manifest.model.tables
        rows = np.empty((NUM_IDS, DIM), np.float32)
        reader.table(spec).pull(np.arange(NUM_IDS), rows)
        return rows, reader.variable("weights")


def rows_alone(features, labels, mode):
    items = embedding_lookup("items", features["ids"], NUM_IDS, DIM, initializer="zeros")
    gradients = {"items": SparseGradient(np.arange(NUM_IDS), np.ones((NUM_IDS, DIM)))}
    train_op = GradientDescent(learning_rate=1.0).apply_gradients(gradients)
    return EstimatorSpec(mode=mode, loss=float(items.sum()), train_op=train_op)


@pytest.mark.parametrize("num_ps", [1, 2])
@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_a_replica_alone_is_never_stale_also_where_all_parameters_are_rows(roles, tmp_path, transport, num_ps):
    config = RunConfig(tf_random_seed=1, consistency=Async(staleness_aware=True))
    estimator = Estimator(rows_alone, str(tmp_path), config)
    with Attempt(estimator, TrainSpec(input_fn, 10), None, num_ps=num_ps, transport=transport) as attempt:
        roles.train(attempt.job())
    np.testing.assert_array_equal(estimator.get_table_rows("items", np.arange(NUM_IDS)), -10.0)


def few_rows(features, labels, mode):
    ids = features["ids"]
    rows = embedding_lookup("biases", ids, 3, 1)
    train_op = GradientDescent(learning_rate=1.0).apply_gradients({"biases": SparseGradient(ids, np.ones_like(rows))})
    return EstimatorSpec(mode=mode, loss=0.0, train_op=train_op)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_decisions_may_be_longer_than_the_rows_that_are_pulled_with_them(roles, tmp_path, transport):
    estimator = Estimator(few_rows, str(tmp_path), RunConfig(tf_random_seed=1, pipeline_depth=1))
    spec = TrainSpec(lambda: Dataset({"ids": np.arange(60) % 3}, np.zeros(60)).batch(6).repeat(), 40)
    with Attempt(estimator, spec, None, num_ps=2, num_workers=2, transport=transport) as attempt:
        reports = roles.train(attempt.job())
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 40


@pytest.mark.parametrize("num_ps", [1, 2, 3])
@pytest.mark.parametrize("transport", ["shm", "unix", "tcp"])
def test_sockets_and_shards_change_no_bit_of_a_table(train, transport, num_ps):
    here, _ = train("here", transport="tcp")
    there, statistics = train("there", num_ps=num_ps, transport=transport)
    for mine, theirs in zip(values_of(here, 30), values_of(there, 30), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert statistics["rows_pulled"] > 0


CONSISTENCIES = [
    (Async(), 0),
    (Async(), 1),
    (Async(staleness_aware=True), 1),
    (BoundedStaleness(1), 0),
    (BoundedStaleness(2), 1),
    (Sync(), 0),
    (Sync(2), 0),
    (Hogwild(), 0),
    (Hogwild(), 1),
]
NUM_PS, TRANSPORTS, AS_GIVEN = (1, 2), ("shm", "tcp"), (True, False)


def pairwise():
    """Yield two cases of each consistency: any two values of two factors meet in a case."""
    for number, consistency in enumerate(CONSISTENCIES):
        for flip in (0, 1):
            yield consistency, NUM_PS[flip], TRANSPORTS[(flip + number) % 2], AS_GIVEN[(flip + number // 2) % 2]


def test_any_two_values_meet_in_a_case_of_each_consistency():
    factors = (CONSISTENCIES, NUM_PS, TRANSPORTS, AS_GIVEN)
    for one, other in combinations(range(len(factors)), 2):
        assert {(case[one], case[other]) for case in pairwise()} == set(product(factors[one], factors[other]))


@pytest.mark.parametrize(
    ("consistency", "pipeline_depth", "num_ps", "transport", "as_given"),
    [(*consistency, num_ps, transport, as_given) for consistency, num_ps, transport, as_given in pairwise()],
)
def test_each_consistency_comes_to_the_exact_end(train, consistency, pipeline_depth, num_ps, transport, as_given):
    estimator, statistics = train(
        params={"as_given": as_given},
        max_steps=45,
        num_workers=2,
        num_ps=num_ps,
        transport=transport,
        consistency=consistency,
        pipeline_depth=pipeline_depth,
    )
    job = statistics["job"]
    assert sorted(CheckpointStore(estimator.model_dir).steps()) == [0, 20, 40, 45]
    assert job["global_step"] == 45
    assert (job["repeats"], job["misses"]) == (0, 0)
    per_update = {Sync(): 3, Sync(2): 2}.get(consistency, 1)
    assert job["pushes"] == 45 * per_update
    assert job["examples"] == 45 * per_update * BATCH_SIZE
    assert job["max_staleness"] <= getattr(consistency, "max_staleness", 45)
    if isinstance(consistency, Sync):
        assert job["max_staleness"] == 0
    assert all(np.isfinite(values).all() for values in values_of(estimator, 45))


def test_a_pipeline_with_one_replica_is_one_step_behind(train):
    _, straight = train("straight", max_steps=40)
    _, pipelined = train("pipelined", max_steps=40, pipeline_depth=1)
    assert straight["job"]["max_staleness"] == 0
    assert pipelined["job"]["max_staleness"] == 1
    assert 0.9 < pipelined["job"]["mean_staleness"] < 1


def test_a_job_with_tables_goes_on_with_the_same_bits_on_another_number_of_ps(train):
    here, _ = train("here", max_steps=60)
    there, _ = train("there", max_steps=40, num_ps=2)
    there, _ = train("there", max_steps=60, num_ps=3, transport="tcp")
    for mine, theirs in zip(values_of(here, 60), values_of(there, 60), strict=True):
        np.testing.assert_array_equal(mine, theirs)
