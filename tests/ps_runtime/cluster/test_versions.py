"""Dask workers with another psflow: refused with a sentence that names host and versions."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

import psflow
from psflow import TrainSpec, train_and_evaluate
from psflow.ps_runtime.cluster import versions as module
from psflow.ps_runtime.cluster.chief_process import describe, is_of_cluster
from psflow.ps_runtime.cluster.versions import Versions, own_versions
from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses
from tests.ps_runtime.cluster.test_training import EVAL, endless, estimator

pytestmark = pytest.mark.cluster(shared=True)

START_SECS = 60


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A cluster of a process with this psflow, and of one with a psflow that has another line of code."""
    folder = tmp_path_factory.mktemp("versions")
    other = folder / "other" / "psflow"
    shutil.copytree(Path(psflow.__file__).parent, other, ignore=shutil.ignore_patterns("__pycache__"))
    with (other / "ps_runtime" / "keys.py").open("a") as file:
        file.write("# another commit\n")
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=None, protocol="tcp") as cluster,
        Client(cluster) as connected,
    ):
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--no-dashboard"]
        command += ["--no-nanny", "--nthreads", "2", "--local-directory", str(folder), "--name"]
        processes = [
            subprocess.Popen([*command, path.name], cwd=path, env=child_environment({"PYTHONPATH": str(path)}))
            for path in (Path(psflow.__file__).parents[1], other.parent)
        ]
        try:
            connected.wait_for_workers(2, timeout=START_SECS)
            yield connected
        finally:
            for process in processes:
                process.kill()
                process.wait()


def slot_of(client: Client, name: str) -> str:
    [found] = [slot for slot, worker in client.scheduler_info(n_workers=-1)["workers"].items() if worker["id"] == name]
    return found


def test_a_worker_with_other_code_of_the_same_version_is_named(client: Client) -> None:
    versions, slots = Versions(client), list(client.scheduler_info(n_workers=-1)["workers"])
    faults = versions.faults(slots)
    other = slot_of(client, "other")
    assert list(faults) == [other]
    name, code = re.escape(f"the Dask worker {other} on {socket.gethostname()} has"), r"psflow \S+ \(code \w{8}\)"
    assert re.fullmatch(f"{name} {code}, but this process {code}", faults[other])


def test_a_job_does_not_start_there(client: Client, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^the Dask worker .* psflow .*; install the same on all hosts, and start"):
        train_and_evaluate(estimator(tmp_path), TrainSpec(endless, max_steps=9), EVAL, client=client, num_workers=1)
    assert not any(client.processing().values())


def test_a_worker_that_does_not_answer_is_asked_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECS", 0.2)
    versions, gone = Versions(client), "tcp://127.0.0.1:1"
    assert versions.faults([gone]) == {}
    monkeypatch.setattr(versions, "_ask", pytest.fail)
    assert versions.faults([gone]) == {}


def test_processes_of_a_manual_cluster_compare_versions() -> None:
    described = describe(ClusterAddresses("127.0.0.1:1", ps=("127.0.0.1:2",)), "/models", {})
    assert own_versions().items() <= described.items()
    assert all(is_of_cluster(name) for name in described)
