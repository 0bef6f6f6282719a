import numpy as np
import pytest

from benchmarks.models import dense, embedding, many, mlp
from benchmarks.workloads import Workload
from psflow import ModeKeys, RunConfig
from psflow.ps_runtime.model.calls.caller import ModelCaller

SMALL = {"dense": {"num_parameters": 1000}, "mlp": {}, "embedding": {"ids": "zipf"}}


@pytest.fixture(autouse=True)
def _few_batches(monkeypatch):
    monkeypatch.setattr(embedding, "NUM_BATCHES", 2)


@pytest.fixture(params=SMALL)
def workload(request):
    return Workload(request.param, 10, 1.0, SMALL[request.param])


def test_the_peer_reads_the_same_records(workload, tmp_path):
    workload.save_arrays(str(tmp_path / "records.npz"))
    data = workload.arrays()
    with np.load(tmp_path / "records.npz") as saved:
        assert all(np.array_equal(saved[name], data[name]) for name in ("features", "labels"))


def test_batches_are_whole_for_the_peer_cuts_them_once(workload):
    data, dataset = workload.arrays(), workload.module.input_fn(workload.params)
    assert len(data["labels"]) % workload.module.BATCH_SIZE == 0
    assert dataset.batch_size == workload.module.BATCH_SIZE
    assert dataset.num_epochs is None


def test_a_gradient_is_computed(workload):
    size = workload.module.BATCH_SIZE
    data = workload.arrays()
    built = ModelCaller(workload.module.model_fn, workload.params, RunConfig()).build(
        data["features"][:size], data["labels"][:size], ModeKeys.TRAIN, 1
    )
    assert np.isfinite(built.spec.loss)
    assert workload.bare_step()() is not None


def test_the_gradient_of_the_network_is_that_of_its_loss():
    rng = np.random.default_rng(0)
    variables = {name: rng.normal(0, 0.1, shape) for name, shape in mlp.SHAPES.items()}
    images, labels = rng.random((8, mlp.NUM_PIXELS)), rng.integers(0, 10, 8)
    _, gradients = mlp.loss_and_gradients(variables, images, labels)
    for name, value in variables.items():
        place = np.unravel_index(3, value.shape)
        losses = []
        for change in (1e-6, -1e-6):
            moved = value.copy()
            moved[place] += change
            losses.append(mlp.loss_and_gradients(variables | {name: moved}, images, labels)[0])
        assert gradients[name][place] == pytest.approx((losses[0] - losses[1]) / 2e-6, rel=1e-4)


def test_the_limit_of_the_network_computes_what_a_replica_computes():
    computed = mlp.bare_step({})()[1]
    assert {name: gradient.shape for name, gradient in computed.items()} == mlp.SHAPES
    assert {gradient.dtype for gradient in computed.values()} == {np.dtype(np.float32)}


def test_the_limit_of_bytes_copies_all_of_them():
    inbox = dense.bare_step({"num_parameters": 1000})()
    assert inbox.nbytes == 4000


def test_zipf_ids_are_frequent_ones_mostly_and_scattered():
    ids = embedding.arrays({"ids": "zipf"})["features"]
    assert ids.min() >= 0
    assert ids.max() < embedding.NUM_ROWS
    found, counts = np.unique(ids, return_counts=True)
    frequent = np.sort(counts)[::-1]
    assert frequent[0] / frequent[7] == pytest.approx(8**1.05, rel=0.1)
    assert np.ptp(found[np.argsort(counts)[-8:]]) > embedding.NUM_ROWS / 4


def test_uniform_ids_are_as_frequent_as_each_other():
    ids = embedding.arrays({"ids": "uniform"})["features"]
    assert ids.mean() == pytest.approx(embedding.NUM_ROWS / 2, rel=0.01)


def test_many_variables_and_columns_are_trained_and_copied():
    params = {"num_variables": 10, "num_columns": 3}
    batch = {name: column[: many.BATCH_SIZE] for name, column in many.arrays(params).items()}
    model = ModelCaller(many.model_fn, params, RunConfig()).build(batch, None, ModeKeys.TRAIN, 1).model
    assert [variable.shape for variable in model.variables] == [(many.NUM_PARAMETERS // 10,)] * 10
    assert list(many.input_fn(params).features) == list(batch)
    assert [len(column) for column in many.bare_step(params)()] == [many.BATCH_SIZE] * 3
