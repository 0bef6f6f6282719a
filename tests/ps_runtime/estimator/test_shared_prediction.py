"""Predictions by the processes of a cluster of TF_CONFIG, which share the batches of the input."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from psflow import Estimator, RunConfig
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from tests.limits import HANG_SECS
from tests.ps_runtime.estimator.regression import NUM_BATCHES, BatchRows, batches, computed, filtered, records, shuffled

CLUSTER = ClusterAddresses("a:1", ("b:1", "c:1"), ("d:1",))
REPLICAS = [(TaskType.CHIEF, 0), (TaskType.WORKER, 0), (TaskType.WORKER, 1)]


@pytest.fixture
def trained(make: Any) -> Estimator:
    return make().train(shuffled, max_steps=2)


def estimator_of(trained: Estimator, kind: TaskType, index: int, cluster: ClusterAddresses = CLUSTER) -> Estimator:
    """Return the Estimator of one process of a cluster."""
    return Estimator(trained.model_fn, trained.model_dir, RunConfig(cluster=ClusterTask(cluster, kind, index)))


@pytest.mark.parametrize("input_fn", [records, shuffled, computed, filtered, batches])
def test_each_batch_once_over_all_processes(trained: Estimator, input_fn: Any) -> None:
    whole = [batch["row"].tolist() for batch in trained.predict(input_fn, yield_single_examples=False)]
    shares = [
        [
            batch["row"].tolist()
            for batch in estimator_of(trained, *replica).predict(input_fn, yield_single_examples=False)
        ]
        for replica in REPLICAS
    ]
    assert len(whole) == NUM_BATCHES
    assert shares == [whole[0::3], whole[1::3], whole[2::3]]


def test_examples_keys_and_hooks_are_those_of_the_own_batches(trained: Estimator) -> None:
    seen = BatchRows()
    found = list(estimator_of(trained, TaskType.WORKER, 1).predict(records, ["row"], hooks=[seen]))
    rows = [row for first in (8, 20, 32) for row in range(first, first + 4)]
    assert [example["row"] for example in found] == seen.rows == rows
    assert all(set(example) == {"row"} for example in found)


def test_a_share_may_be_empty(trained: Estimator) -> None:
    def one_batch() -> Any:
        yield next(batches())

    assert list(estimator_of(trained, TaskType.WORKER, 0).predict(one_batch)) == []
    assert len(list(estimator_of(trained, TaskType.CHIEF, 0).predict(one_batch))) == 4


def test_a_master_shares_as_a_chief(trained: Estimator) -> None:
    cluster = ClusterAddresses("a:1", ("b:1",), ("d:1",), chief_evaluates=True)
    found = list(estimator_of(trained, TaskType.MASTER, 0, cluster).predict(records, yield_single_examples=False))
    assert [batch["row"][0] for batch in found] == [0, 8, 16, 24, 32]


def test_a_process_says_which_batches_it_predicts(trained: Estimator, caplog: pytest.LogCaptureFixture) -> None:
    next(estimator_of(trained, TaskType.WORKER, 0).predict(records))
    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning == (
        "worker 0 predicts batches 1, 4, 7, ... of the input, counted from 0, as one of 3 processes that share them; "
        "psflow cannot check that input_fn yields the same batches in each process; to predict everything in this "
        "process, give a RunConfig with cluster=None"
    )


def test_a_chief_without_workers_predicts_everything(trained: Estimator, caplog: pytest.LogCaptureFixture) -> None:
    alone = estimator_of(trained, TaskType.CHIEF, 0, ClusterAddresses("a:1", ps=("d:1",)))
    assert [row["row"] for row in alone.predict(records)] == list(range(40))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("kind", [TaskType.PS, TaskType.EVALUATOR])
def test_a_ps_and_an_evaluator_predict_nothing_and_say_so(
    trained: Estimator, kind: TaskType, caplog: pytest.LogCaptureFixture
) -> None:
    assert list(estimator_of(trained, kind, 0).predict(pytest.fail)) == []
    assert f"{kind} 0 predicts nothing: the chief and the workers share the input; to predict" in caplog.text


def test_a_client_of_dask_is_refused_in_a_process_of_a_cluster(trained: Estimator) -> None:
    client: Any = object()
    words = (
        r"^predict: this process is worker 0 of a cluster, whose chief and workers share the input, and a client is "
        r"given; leave out the client, or give a RunConfig with cluster=None$"
    )
    with pytest.raises(UsageError, match=words):
        list(estimator_of(trained, TaskType.WORKER, 0).predict(pytest.fail, client=client))


def test_a_task_without_a_share_is_refused(trained: Estimator) -> None:
    words = r"^predict: this process is client 0 of a cluster, and has no share of the input; to predict everything"
    with pytest.raises(UsageError, match=words):
        list(estimator_of(trained, TaskType.CLIENT, 0).predict(pytest.fail))


PROGRAM = """
import sys
import numpy as np
import psflow

def rows():
    return psflow.Dataset({"x": np.zeros((10, 2), np.float32), "row": np.arange(10)}).batch(2)

def model_fn(features, mode):
    predicted = features["x"] @ psflow.get_variable("w", (2,))
    return psflow.EstimatorSpec(mode, predictions={"y": predicted, "row": features["row"]})

for example in psflow.Estimator(model_fn, sys.argv[1]).predict(rows):
    print(example["row"])
"""


@pytest.mark.process
def test_the_same_program_in_each_process_predicts_each_row_once(trained: Estimator) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1"], "ps": ["c:1"]}
    started = {
        kind: subprocess.Popen(
            [sys.executable, "-c", PROGRAM, trained.model_dir],
            env=os.environ | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": 0}})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for kind in cluster
    }
    found = {kind: process.communicate(timeout=HANG_SECS) for kind, process in started.items()}
    assert {kind: out.split() for kind, (out, _) in found.items()} == {
        "chief": ["0", "1", "4", "5", "8", "9"],
        "worker": ["2", "3", "6", "7"],
        "ps": [],
    }, found
    assert found["worker"][1].startswith("WARNING:psflow:worker 0 predicts batches 1, 3, 5, ... of the input")
