"""A rig of hosts for each scene, and what runs on it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.acceptance.conftest import pytest_collection_modifyitems, wait_for  # noqa: F401 - the former is a hook
from tests.hosts.rig import Rig, RigHost, hosts_on_a_switch, why_no_rig
from tests.hosts.training import miscounted
from tests.limits import HANG_SECS

DASK = str(Path(sys.executable).with_name("dask"))
PSFLOW = str(Path(sys.executable).with_name("psflow"))
PORT = 8786
SUPERVISOR = 'while :; do "$@"; sleep 1; done'


class DaskOnHosts:
    """A Dask cluster on the hosts of a rig, as somebody starts it by hand, and trainings on it."""

    def __init__(self, rig: Rig, directory: Path, protocol: str = "tcp", variables: Mapping[str, str] = {}) -> None:
        self.rig = rig
        self.directory = directory
        self.protocol = protocol
        self.address = f"{protocol}://{rig.hosts[0].address}:{PORT}"
        self.variables = variables
        """Of the environment of each process."""
        self.model_dir = directory / "model"
        self._num_workers = 0

    def start_scheduler(self) -> None:
        host = self.rig.hosts[0]
        words = (DASK, "scheduler", "--host", host.address, "--port", str(PORT), "--no-dashboard")
        words += ("--protocol", self.protocol)
        host.start(*words, directory=self.directory, log="scheduler.log", **self.variables)

    def start_workers(
        self,
        host: RigHost,
        num_slots: int = 2,
        *,
        resource: str | None = None,
        restarts: bool = False,
        **variables: str,
    ) -> None:
        """Start Dask workers that declare a resource, and with `restarts` again whenever they end, as systemd does."""
        options = ("--nthreads", "1", "--nworkers", str(num_slots), "--no-dashboard", "--host", host.address)
        words: tuple[str, ...] = (DASK, "worker", self.address, *options)
        words += () if resource is None else ("--resources", f"{resource}=1")
        words = ("sh", "-c", SUPERVISOR, "sh", *words) if restarts else words
        host.start(*words, directory=self.directory, log=f"{host.name}.log", **self.variables, **variables)
        self._num_workers += num_slots

    def await_workers(self) -> None:
        """Wait until all Dask workers are there that were started."""

        def are_there() -> bool:
            logs = (log.read_text() for log in self.directory.glob("host*.log"))
            return sum(text.count("Registered to: ") for text in logs) >= self._num_workers

        wait_for(are_there, HANG_SECS, f"{self._num_workers} Dask workers")

    def train(self, program: str = "tests.hosts.training", **options: Any) -> Popen[bytes]:
        """Start a training by a program on the host of the scheduler, once all Dask workers are there."""
        self.await_workers()
        told = json.dumps({"model_dir": str(self.model_dir), "address": self.address, **options})
        words = (sys.executable, "-m", program, told)
        return self.rig.hosts[0].start(*words, directory=self.directory, log="training.log", **self.variables)

    def psflow(self, *words: str) -> Popen[bytes]:
        """Start a command of psflow there; its databases are in the directory that all hosts share."""
        self.await_workers()
        home = {"PREFECT_HOME": str(self.directory / "prefect")}
        words = (PSFLOW, *words, f"cluster.address={self.address}")
        return self.rig.hosts[0].start(*words, directory=self.directory, log="training.log", **self.variables, **home)

    @property
    def log(self) -> str:
        return (self.directory / "training.log").read_text()

    def await_checkpoints(self, training: Popen[bytes], num_checkpoints: int = 3) -> None:
        """Wait until a training has saved some checkpoints, so that a fault meets it in the middle."""
        store = CheckpointStore(str(self.model_dir))

        def has_saved() -> bool:
            assert training.poll() is None, self.log
            return self.model_dir.exists() and len(store.steps()) >= num_checkpoints

        wait_for(has_saved, HANG_SECS, f"{num_checkpoints} checkpoints")

    def host_of(self, role: str) -> RigHost:
        """Return the host on which a role has started last."""
        lines = [line.split() for line in self.log.splitlines() if line.startswith(f"started {role} on ")]
        return next(host for host in self.rig.hosts if host.name == lines[-1][-1])

    def finish(self, training: Popen[bytes], **options: int | None) -> None:
        """Wait for the end of a training, which has counted everything exactly once."""
        assert training.wait(HANG_SECS) == 0, self.log
        assert miscounted(self.model_dir, **options) == []


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """Three hosts; a test may say by a parameter what their links are like."""
    link = getattr(request, "param", None)
    if why_not := why_no_rig(link):
        pytest.skip(why_not)
    with hosts_on_a_switch(tmp_path, link=link) as rig:
        yield rig


@pytest.fixture
def on_hosts(rig: Rig, tmp_path: Path) -> DaskOnHosts:
    """A Dask scheduler on the first host; its workers are to be started."""
    dask = DaskOnHosts(rig, tmp_path)
    dask.start_scheduler()
    return dask


def cut_off(rig: Rig, host: RigHost, secs: float) -> None:
    """Take the cable of a host out, and put it back later."""
    rig.set_link(host, "down")
    time.sleep(secs)
    rig.set_link(host, "up")
