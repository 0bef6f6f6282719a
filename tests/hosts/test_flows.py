"""Flows on three hosts, as the commands of psflow start them, with Prefect and MLflow."""

from __future__ import annotations

import re
import sqlite3
import sys
import time

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from benchmarks.predicting import NUM_COLUMNS, export_network, logits_of
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.deadline import Deadline
from tests.acceptance.conftest import wait_for
from tests.hosts.conftest import DaskOnHosts, cut_off
from tests.limits import HANG_SECS
from tests.new_databases import copy_prefect_database, copy_store

CUT_SECS = 60.0
"""Longer than a Dask worker waits for its scheduler: it ends once the link is back."""
STEPS = 14000
"""More than a replica makes while the hosts are cut off, by `STEP_SECS` of its model."""
COUNT = f"""
experiment: count
seed: 1
model_dir: model
model: {{name: "tests.hosts.training:model_fn"}}
input:
  train: {{name: "tests.chaos.program:endless"}}
  eval: {{name: "tests.chaos.program:records"}}
train: {{max_steps: {STEPS}, save_checkpoints_steps: 500, keep_checkpoint_max: null}}
eval: {{throttle_secs: 3600}}
plots: false
cluster: {{ps: 1, workers: 2, min_workers: 0}}
"""

ADAPTIVE_STEPS = 1000
TARGETS = """
import sys, time
from distributed import Client

def target(dask_scheduler):
    return dask_scheduler.adaptive_target()

with Client(sys.argv[1]) as client:
    while True:
        print("target", client.run_on_scheduler(target), flush=True)
        time.sleep(0.5)
"""
"""What an autoscaler asks a scheduler for: how many Dask workers it wants."""

NUM_FILES, FILE_ROWS = 40, 20_000

pytestmark = [pytest.mark.piece(number=11), pytest.mark.measured]


@pytest.fixture
def flows_on_hosts(on_hosts: DaskOnHosts) -> DaskOnHosts:
    """The same, with new databases of MLflow and Prefect."""
    copy_store(on_hosts.directory)
    copy_prefect_database(on_hosts.directory / "prefect")
    return on_hosts


def test_each_host_is_cut_off_for_a_minute(flows_on_hosts: DaskOnHosts) -> None:
    first, second, third = flows_on_hosts.rig.hosts
    flows_on_hosts.start_workers(first, 1, restarts=True)  # of the evaluator
    for resource in ("psflow-ps", "psflow-worker"):  # of the ps, and of the chief
        flows_on_hosts.start_workers(second, 1, resource=resource, restarts=True)
    (flows_on_hosts.directory / "count.yaml").write_text(COUNT)
    training = flows_on_hosts.psflow("train", "count.yaml")
    flows_on_hosts.await_checkpoints(training, 1)
    flows_on_hosts.start_workers(third, restarts=True)
    flows_on_hosts.await_checkpoints(training, 4)
    store = CheckpointStore(str(flows_on_hosts.model_dir))
    for host in (third, second):
        cut_off(flows_on_hosts.rig, host, CUT_SECS)
        flows_on_hosts.await_checkpoints(training, len(store.steps()) + 2)
    flows_on_hosts.finish(training, max_steps=STEPS)
    assert "its Dask worker" in flows_on_hosts.log, "no host was cut off for long enough"
    with sqlite3.connect(flows_on_hosts.directory / "prefect" / "prefect.db") as database:
        states = database.execute("select name, state_type from task_run where name like '%-_'").fetchall()
    assert dict(states) == dict.fromkeys(("ps-0", "chief-0", "worker-0", "worker-1", "evaluator-0"), "COMPLETED")


def test_an_autoscaler_gives_the_hosts_that_a_training_needs(flows_on_hosts: DaskOnHosts) -> None:
    hosts, log = flows_on_hosts.rig.hosts, flows_on_hosts.directory / "targets.log"
    hosts[0].start(
        sys.executable, "-c", TARGETS, flows_on_hosts.address, directory=flows_on_hosts.directory, log=log.name
    )

    def targets() -> list[int]:
        return [int(number) for number in re.findall(r"^target (\d+)\n", log.read_text(), re.MULTILINE)]

    wait_for(targets, HANG_SECS, "the scheduler")
    (flows_on_hosts.directory / "count.yaml").write_text(COUNT)
    settings = (f"train.max_steps={ADAPTIVE_STEPS}", "cluster.adaptive=true")
    training = flows_on_hosts.psflow("train", "count.yaml", *settings)
    num_hosts, deadline = 0, Deadline(HANG_SECS)
    while training.poll() is None:
        assert not deadline.has_passed, flows_on_hosts.log
        if targets()[-1] > 2 * num_hosts:
            flows_on_hosts.start_workers(hosts[num_hosts])
            num_hosts += 1
            flows_on_hosts.await_workers()
        time.sleep(0.5)
    flows_on_hosts.finish(training, max_steps=ADAPTIVE_STEPS)
    assert num_hosts == 3
    assert 5 <= max(targets()) <= 6, "it has five roles, and asks for one more if its ps is slow to start"
    wait_for(lambda: targets()[-1] == 0, HANG_SECS, "the autoscaler to be asked for nothing")


def test_a_host_is_killed_while_all_predict(flows_on_hosts: DaskOnHosts) -> None:
    directory = flows_on_hosts.directory
    model, variables = export_network(directory / "network")
    (directory / "in").mkdir()
    rows = np.random.default_rng(1).standard_normal((NUM_FILES, FILE_ROWS, NUM_COLUMNS), np.float32)
    for number, values in enumerate(rows):  # a partition each
        table = pa.table({f"x{i}": column for i, column in enumerate(values.T)})
        parquet.write_table(table, directory / f"in/{number:02}.parquet")
    for host in flows_on_hosts.rig.hosts:
        flows_on_hosts.start_workers(host)
    words = ("--model", model, "--input", "in", "--output", "out", "format=parquet")
    prediction = flows_on_hosts.psflow("predict", *words)
    wait_for(lambda: list(directory.glob("out/_parts/*")), HANG_SECS, "the first part")
    flows_on_hosts.rig.hosts[2].kill()
    assert not (directory / "out" / "_SUCCESS").exists(), "it needs more files"
    assert prediction.wait(HANG_SECS) == 0, flows_on_hosts.log
    logits = np.stack(parquet.read_table(directory / "out")["logits"].to_numpy())
    np.testing.assert_allclose(logits, logits_of(variables, rows.reshape(-1, NUM_COLUMNS)), rtol=1e-4, atol=1e-5)
