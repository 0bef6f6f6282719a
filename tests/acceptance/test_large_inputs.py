"""Inputs larger than memory: what processes hold of them, how fast they are scanned, and how evenly they are shared.

``PSFLOW_INPUT_GB`` is the size of the input of many files (default 2), ``PSFLOW_ONE_FILE_GB`` that of the one file
(default 0.3); a release is measured with 20 and 2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client

from psflow import LinearClassifier, RunConfig, Sync, TrainSpec
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.estimator.attempt import Attempt
from tests.flows.conftest import Project
from tests.new_databases import copy_prefect_database, copy_store

pytestmark = [pytest.mark.piece(number=8), pytest.mark.measured, pytest.mark.timeout(7200)]

INPUT_GB = float(os.environ.get("PSFLOW_INPUT_GB", "2"))
ONE_FILE_GB = float(os.environ.get("PSFLOW_ONE_FILE_GB", "0.3"))
FILE_BYTES = 10**8
SAMPLE_SECS = 0.2

MAX_ROLE_MB = 400.0
MAX_SCAN_MB = 600.0
"""Of the process of the flow while it scans, of which imports take half."""
MIN_SCAN_MB_PER_SEC = 30.0
MAX_UNEVEN = 0.1

CONF = """
experiment: large
seed: 1
model: {name: LinearClassifier, params: {n_classes: 2}}
input:
  train:
    format: csv
    path: links
    label: y
    key_columns: [id]
    columns: {x0: {normalize: standard}, x1: {impute: median}, x2: {buckets: quantiles}}
    batch_size: 1024
    shuffle: true
  eval: {format: csv, path: held_out.csv, batch_size: 1000}
cluster: {workers: 1}
train: {max_steps: %d, save_checkpoints_steps: %d}
"""


def block(first: int, num_rows: int) -> str:
    """Return some rows of a CSV file: an id, numbers, words, text with line ends in quotes, and a label."""
    random = np.random.default_rng(first)
    numbers = random.normal(size=(num_rows, 6)).round(4)
    words, labels = random.integers(0, 500, num_rows), random.integers(0, 2, num_rows)
    return "".join(
        f'{first + row},{",".join(map(str, numbers[row]))},w{words[row]},"a note,\nwith ""quotes""",{labels[row]}\n'
        for row in range(num_rows)
    )


def write_csv(path: Path, num_bytes: float) -> None:
    """Write a CSV file of about so many bytes, whose rows repeat."""
    rows = block(0, 50_000)
    with path.open("w") as file:
        file.write("id,x0,x1,x2,x3,x4,x5,word,note,y\n")
        for _ in range(max(1, round(num_bytes / len(rows)))):
            file.write(rows)


@pytest.fixture
def links(tmp_path: Path) -> Iterator[Project]:
    """Give a project with a folder of links to one file, hard and symbolic ones in turn."""
    copy_store(tmp_path)
    copy_prefect_database(tmp_path / "prefect")
    (tmp_path / "links").mkdir()
    one = tmp_path / "one.csv"
    write_csv(one, FILE_BYTES)
    (tmp_path / "held_out.csv").write_text("id,x0,x1,x2,x3,x4,x5,word,note,y\n" + block(0, 5000))
    for number in range(round(INPUT_GB * 10**9 / FILE_BYTES)):
        link = tmp_path / "links" / f"{number:04}.csv"
        link.hardlink_to(one) if number % 2 else link.symlink_to(one)
    yield Project(tmp_path, timeout_secs=7000)
    shutil.rmtree(tmp_path)


def pss_mb(pid: int) -> float:
    """Return the memory of a process, of shared pages its share; 0 if it is no more."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:"))


def peaks_of(process: subprocess.Popen[str]) -> tuple[float, dict[int, float]]:
    """Wait for a command; return the peak of its process in MB, and those of the roles that it has started."""
    flow, roles = 0.0, dict[int, float]()
    while process.poll() is None:
        flow = max(flow, pss_mb(process.pid))
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                is_role = "multiprocessing.forkserver" in " ".join(child.cmdline())
            except psutil.Error:
                continue
            if is_role:
                roles[child.pid] = max(roles.get(child.pid, 0.0), pss_mb(child.pid))
        time.sleep(SAMPLE_SECS)
    return flow, roles


def test_a_scan_takes_bounded_time_and_memory(links: Project) -> None:
    links.write("large.yaml", CONF % (10, 10))
    began = time.monotonic()
    flow, _ = peaks_of(links.start("plan", "large.yaml"))
    secs = time.monotonic() - began
    rate = INPUT_GB * 1000 / secs
    print(f"psflow plan on {INPUT_GB:g} GB: {secs:.0f} s, {rate:.0f} MB/s, peak PSS {flow:.0f} MB")
    assert flow < MAX_SCAN_MB
    assert rate > MIN_SCAN_MB_PER_SEC


def test_a_role_holds_little_of_an_input_and_nothing_is_scanned_twice(links: Project) -> None:
    steps = round(INPUT_GB * 1500)  # about half an epoch
    links.write("large.yaml", CONF % (steps, steps))
    process = links.start("train", "large.yaml")
    flow, roles = peaks_of(process)
    assert process.returncode == 0, process.communicate()[1]
    print(f"psflow train on {INPUT_GB:g} GB: peak PSS of the flow {flow:.0f} MB, of roles and their server", roles)
    assert len(roles) >= 4
    assert max(roles.values()) < MAX_ROLE_MB
    links.write("more.yaml", CONF % (steps + 10, steps))
    began = time.monotonic()
    links.run("train", "more.yaml")
    secs = time.monotonic() - began
    print(f"resumed, trained 10 steps and ended in {secs:.0f} s")
    assert secs < 120  # whatever the size


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with open_cluster(None, 4, 300) as client:
        yield client


@pytest.mark.cluster(shared=True)
def test_one_file_with_quoted_line_ends_feeds_two_workers_evenly(tmp_path: Path, client: Client) -> None:
    write_csv(tmp_path / "one.csv", ONE_FILE_GB * 10**9)
    data = Csv(path=str(tmp_path / "one.csv"), label="y", features=["x0", "x1", "x2", "x3"])
    # each update takes a gradient of each replica: what may differ is what they get to read, not their share of cores
    config = RunConfig(tf_random_seed=1, consistency=Sync())
    estimator = LinearClassifier(n_classes=2, model_dir=str(tmp_path / "m"), config=config)

    def train() -> Any:
        return data.read().batch(256).shuffle(seed=1)

    with Attempt(estimator, TrainSpec(train), None, num_workers=2) as attempt:
        num_records = attempt.plan.datasets["train"].num_records
        with ClusterJob(client, attempt.job(), lambda event: None) as run:
            run.start(AdmissionPolicy(60.0))
            reports = run.join(attempt.check)
    (tmp_path / "one.csv").unlink()
    examples = reports["chief-0"]["statistics"]["job"]["examples"]
    steps = {name: report["statistics"]["steps"] for name, report in reports.items() if name.startswith("worker")}
    print(f"{num_records} records of one file: {examples} examples, steps {steps}")
    assert examples == num_records
    assert max(steps.values()) <= (1 + MAX_UNEVEN) * min(steps.values())
