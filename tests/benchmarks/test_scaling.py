import json

import pytest

from benchmarks import scaling
from benchmarks.models import mlp
from benchmarks.rounds import Slice
from benchmarks.scaling_cluster import CLUSTER, COLOURS, Network, draw_clusters, points
from benchmarks.scaling_model import Bottleneck, Costs, Linear, WayCosts
from benchmarks.settings import Settings
from psflow import ModeKeys, RunConfig
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.specs.layout import place

WAY = WayCosts(*[Linear(20e-6, 1e-10)] * 5)
COSTS = Costs(compute_secs=300e-6, ways={"shm": WAY, "tcp": WAY}, log_secs=1e-6, log_0_secs=0, wake_secs=5e-6)


@pytest.fixture
def measured(monkeypatch):
    """Have jobs run at 1,000, 2,000, .. steps/s in place of real ones; return the names of those that ran."""
    names = []

    def alternate(systems, num_rounds, measure):
        bench, *products = systems
        names.append([product.name for product in products])
        slices = [Slice(1000.0 * (number + 1), 0.001) for number in range(num_rounds)]
        return {bench.name: [COSTS] * num_rounds} | {product.name: slices for product in products}

    monkeypatch.setattr(scaling, "alternate", alternate)
    monkeypatch.setattr(scaling, "networks", list)
    monkeypatch.setattr(scaling, "draw_clusters", lambda networks, directory: names.append(directory))
    return names


def test_each_job_stands_beside_its_prediction(measured, tmp_path):
    rows = scaling.measure(Settings(tmp_path, pairs=3, starts=1, patterns=("async/shm/1ps/1w",)))
    [row] = rows
    assert row.psflow.median == 2000
    assert row.limit.median == pytest.approx(1 / (300e-6 + 3 * 20e-6 - 20e-6 + 3 * 318040e-10 + 5e-6), rel=0.01)
    assert row.ratio_limit.median == pytest.approx(2000 / row.limit.median)
    assert row.cpu_secs_per_step["psflow"] == 0.001
    assert measured == [["psflow async/shm/1ps/1w"], tmp_path]


def test_one_to_three_replicas_and_one_and_two_ps_are_run(measured, tmp_path):
    rows = scaling.measure(Settings(tmp_path, pairs=2, starts=1))
    keys = [row.case for row in rows]
    assert {f"async/shm/{m}ps/{n}w" for m in (1, 2) for n in (1, 2, 3)} <= set(keys)
    assert len(keys) == len(set(keys))


def test_quick_is_one_case_and_an_unknown_one_none(measured, tmp_path):
    assert len(scaling.measure(Settings(tmp_path, quick=True))) == 1
    assert scaling.measure(Settings(tmp_path, patterns=("nonsense",))) == []


def test_the_model_is_what_psflow_makes_of_the_network():
    data = mlp.arrays({})
    batch = data["features"][: mlp.BATCH_SIZE], data["labels"][: mlp.BATCH_SIZE]
    assert ModelCaller(mlp.model_fn, {}, RunConfig()).build(*batch, ModeKeys.TRAIN, 1).model == mlp.MODEL


def test_clusters_are_drawn_and_told(tmp_path, caplog):
    caplog.set_level("INFO")
    draw_clusters([Network("small", mlp.MODEL, COSTS)], tmp_path)
    assert (tmp_path / "scaling_cluster.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads((tmp_path / "scaling_cluster.json").read_text())
    assert {"cluster", "costs", "points"} == set(facts)
    assert facts["cluster"]["network_bytes_per_sec"] == CLUSTER.network_bytes_per_sec
    last = facts["points"][-1]
    assert (last["workers"], last["ps"]) == (1000, 100)
    assert last["bottleneck"] == Bottleneck.LOG
    assert "1000 workers x 100 ps" in caplog.text
    assert "held back by: log of decisions" in caplog.text


def test_a_network_is_predicted_on_the_shards_that_psflow_would_make():
    network = Network("small", mlp.MODEL, COSTS)
    [few, many] = points([network], [(1, 5), (1, 50)])
    assert [layout.nbytes > 0 for layout in place(mlp.MODEL, 50)].count(True) < 10
    assert few["steps_per_sec"] > many["steps_per_sec"]  # more messages, no smaller shards


def test_whatever_holds_a_cluster_back_has_a_colour():
    assert set(COLOURS) == set(Bottleneck) - {Bottleneck.CORES}
