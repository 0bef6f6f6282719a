"""A worker that is stopped for 20 s, and one whose Dask worker is told to end: the others train on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from distributed import Client

from psflow import (
    Dataset,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    RunConfig,
    StepDeadline,
    TrainSpec,
    get_variable,
)
from psflow.ps_runtime.cluster.admission import AdmissionPolicy, free_slots, look
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Event, FirstStep, RoleLost
from psflow.ps_runtime.specs.roles import RoleId
from tests.acceptance.test_lost_roles import dask_process
from tests.free_ports import free_port
from tests.ps_runtime.cluster.test_lost_workers import StopOnFile

pytestmark = [pytest.mark.piece(number=4), pytest.mark.timeout(400), pytest.mark.cluster]

TIMEOUT_SECS = 200.0
BEFORE_SECS = 5.0
STOPPED_SECS = 20.0
SAVE_STEPS = 50
LOST_SHARE = 0.1
PAUSE_SECS = 0.5
"""Between two steps of all others; they take 5 ms when none of them waits."""
WORKER = RoleId.parse("worker-0")
PATIENT = StepDeadline(min_secs=120.0)
"""For a worker that a busy machine stops for seconds: it is not lost by that."""


def endless() -> Dataset:
    """Return records without end."""
    return Dataset({"x": np.zeros(1000, np.float32)}, np.zeros(1000, np.float32)).batch(4).repeat()


class CountingModel:
    """Counts its updates, takes 10 ms for each, and leaves the time of each step of a role in a file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        """Make a step."""
        num_updates = get_variable("num_updates", initializer=0.0)
        if config.num_ps_replicas:
            with (self.directory / f"{config.task_type}-{config.task_id}").open("a") as file:
                file.write(f"{time.time()} {os.getpid()}\n")
        time.sleep(0.01)
        train_op = GradientDescent(1.0).apply_gradients({"num_updates": np.float32(-1)})
        return EstimatorSpec(mode, loss=np.mean(labels**2) + 0 * num_updates, train_op=train_op)

    def steps(self, role: str) -> list[tuple[float, int]]:
        """Return when a role has begun its steps, in Unix time, and in which process."""
        path = self.directory / role
        lines = path.read_text().splitlines() if path.exists() else []
        return [(float(at), int(pid)) for at, pid in (line.split() for line in lines)]


class Scene:
    """A job, and what has become of its first worker."""

    def __init__(self, directory: Path, step_deadline: StepDeadline = PATIENT) -> None:
        self.events: list[Event] = []
        self.model = CountingModel(directory)
        self._stop = directory / "stop"
        config = RunConfig(tf_random_seed=1, save_checkpoints_steps=SAVE_STEPS, step_deadline=step_deadline)
        self.estimator = Estimator(self.model, str(directory / "job"), config)
        self._train_spec = TrainSpec(endless, hooks=[StopOnFile(self._stop)])

    @contextmanager
    def started(self, client: Client, num_workers: int, max_restarts: int) -> Iterator[ClusterJob]:
        """Start the job for the time of a block."""
        with (
            Attempt(self.estimator, self._train_spec, None, num_workers=num_workers) as attempt,
            ClusterJob(client, attempt.job(), self.events.append, max_restarts) as run,
        ):
            run.start(AdmissionPolicy(120))
            yield run

    @property
    def losses(self) -> list[RoleLost]:
        """What was lost."""
        return [event for event in self.events if isinstance(event, RoleLost)]

    def begun_at(self, num_incarnations: int) -> float:
        """Return when that many lives of the worker had made a step; infinity before."""
        first = [event.time for event in self.events if isinstance(event, FirstStep) and event.role == str(WORKER)]
        return first[num_incarnations - 1] if len(first) >= num_incarnations else float("inf")

    def joined(self, run: ClusterJob, look: Callable[[], bool]) -> dict[str, Any]:
        """Train until `look` returns that all has happened; return what the chief says of the job."""

        deadline = time.monotonic() + TIMEOUT_SECS

        def check() -> None:
            assert time.monotonic() < deadline, self.losses
            if look():
                self._stop.touch()

        return dict(run.join(check)["chief-0"]["statistics"]["job"])

    def check_counts(self, job: dict[str, Any]) -> None:
        """Fail if a push or a record was lost, or counted twice."""
        assert (job["repeats"], job["misses"]) == (0, 0)
        assert self.estimator.get_variable_value("num_updates") == job["global_step"]


class Stopped(NamedTuple):
    """What became of a worker that was stopped and resumed, and of the others."""

    loss: RoleLost
    stopped_at: float
    resumed_at: float
    steps: list[float]
    """When the others began a step while it was stopped."""


def stopped_and_resumed(directory: Path, step_deadline: StepDeadline) -> Stopped:
    """Train until a worker that is stopped for a while has begun a new life; no other life is lost."""
    scene = Scene(directory, step_deadline)
    stopped: list[tuple[float, int]] = []
    resumed: list[float] = []

    def look() -> bool:
        now = time.time()
        if not stopped and now >= scene.begun_at(1) + BEFORE_SECS:
            pid = scene.model.steps(str(WORKER))[-1][1]
            os.kill(pid, signal.SIGSTOP)
            stopped.append((now, pid))
        elif stopped and not resumed and now >= stopped[0][0] + STOPPED_SECS:
            os.kill(stopped[0][1], signal.SIGCONT)
            resumed.append(now)
        return now >= scene.begun_at(2)

    with open_cluster(None, 4, 300) as client, scene.started(client, 2, max_restarts=1) as run:
        job = scene.joined(run, look)
    scene.check_counts(job)
    [loss] = scene.losses
    assert loss.role == str(WORKER)
    assert loss.time >= resumed[0], "it finds out when it goes on"
    steps = sorted(at for role in ("chief-0", "worker-1") for at, _ in scene.model.steps(role))
    return Stopped(loss, stopped[0][0], resumed[0], [at for at in steps if stopped[0][0] < at < resumed[0]])


def test_the_others_train_on_without_a_worker_that_is_stopped_and_it_begins_a_new_life(tmp_path: Path) -> None:
    found = stopped_and_resumed(tmp_path, StepDeadline(min_secs=5.0))
    assert re.search(r"it made no push within [\d.]+ s, and others waited for it", found.loss.reason)
    # between two checkpoints they do not wait; the next one is beyond what they made before its life was over
    assert len(found.steps) > 2 * SAVE_STEPS


@pytest.mark.measured
def test_a_worker_that_is_stopped_costs_the_others_no_more_than_a_killed_one(tmp_path: Path) -> None:
    found = stopped_and_resumed(tmp_path, StepDeadline())
    assert "it made no push within 1 s, and others waited for it" in found.loss.reason
    during = [found.stopped_at, *found.steps, found.stopped_at + STOPPED_SECS]
    pauses = [later - at for at, later in pairwise(during) if later - at >= PAUSE_SECS]
    assert sum(pauses) <= LOST_SHARE * STOPPED_SECS, pauses


def test_a_lost_worker_begins_on_a_dask_worker_that_answers_and_not_on_a_stopped_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with open_cluster(None, 6, 300) as client, scene.started(client, 1, max_restarts=1) as run:
        pids = client.run(os.getpid)
        first = free_slots(*look(client))[0]
        os.kill(pids[first], signal.SIGSTOP)
        killed: list[str] = []

        def is_over() -> bool:
            if not killed and time.time() >= scene.begun_at(1) and first not in free_slots(*look(client)):
                killed.append(run._supervisor.slots()[WORKER])
                os.kill(pids[killed[0]], signal.SIGKILL)
            return time.time() >= scene.begun_at(2)

        try:
            scene.check_counts(scene.joined(run, is_over))
        finally:
            os.kill(pids[first], signal.SIGCONT)
    [loss] = scene.losses
    assert loss.reason == f"its Dask worker {killed[0]} was lost"


def test_where_only_a_stopped_dask_worker_is_free_a_lost_worker_waits_until_it_answers(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with cluster(tmp_path, ["--no-nanny"] * 4) as (client, processes):
        spare = free_slots(*look(client))[-1]
        with scene.started(client, 1, max_restarts=1) as run:
            os.kill(processes[spare].pid, signal.SIGSTOP)
            killed_at: list[float] = []
            resumed_at: list[float] = []

            def is_over() -> bool:
                now = time.time()
                if not killed_at and now >= scene.begun_at(1) and spare not in free_slots(*look(client)):
                    killed_at.append(now)
                    processes[run._supervisor.slots()[WORKER]].kill()
                elif killed_at and not resumed_at and now >= killed_at[0] + STOPPED_SECS:
                    assert len(scene.losses) == 1
                    assert WORKER not in run._supervisor.slots()
                    os.kill(processes[spare].pid, signal.SIGCONT)
                    resumed_at.append(now)
                return now >= scene.begun_at(2)

            try:
                scene.check_counts(scene.joined(run, is_over))
            finally:
                os.kill(processes[spare].pid, signal.SIGCONT)
    assert len(scene.losses) == 1


@pytest.mark.ci
def test_a_worker_that_leaves_in_order_begins_again_elsewhere_and_costs_no_restart(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    slots: list[str] = []
    # the third role has the nanny; who has none dies of SIGTERM
    with (
        cluster(tmp_path, ["--no-nanny", "--no-nanny", "--nanny", "--no-nanny", "--no-nanny"]) as (client, processes),
        scene.started(client, 1, max_restarts=0) as run,
    ):

        def look() -> bool:
            if len(slots) < 2 and time.time() >= scene.begun_at(len(slots) + 1):
                slots.append(run._supervisor.slots()[WORKER])
                if len(slots) == 1:
                    processes[slots[0]].terminate()
                else:
                    client.run_on_scheduler(retire, slots[1])
            return time.time() >= scene.begun_at(3)

        job = scene.joined(run, look)
    scene.check_counts(job)
    assert [loss.reason for loss in scene.losses] == [f"its Dask worker {slot} was closed" for slot in slots]
    assert len(set(slots)) == 2


@contextmanager
def cluster(directory: Path, kinds: list[str]) -> Iterator[tuple[Client, dict[str, subprocess.Popen[bytes]]]]:
    """Give a client of a scheduler with a Dask worker of each kind, and their processes by address, in its order."""
    port, *ports = sorted((free_port() for _ in range(len(kinds) + 1)), key=str)
    address = f"tcp://127.0.0.1:{port}"
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    with ExitStack() as stack:
        stack.enter_context(dask_process(directory, "scheduler", "--port", str(port), *common))
        processes = {}
        for kind, at in zip(kinds, ports, strict=True):
            arguments = ["worker", address, "--worker-port", str(at), kind, "--nthreads", "1", *common]
            processes[f"tcp://127.0.0.1:{at}"] = stack.enter_context(dask_process(directory, *arguments))
        client = stack.enter_context(Client(address, timeout=200))
        client.wait_for_workers(len(kinds), timeout=200)
        yield client, processes


async def retire(slot: str, dask_scheduler: Any) -> None:
    """Have a Dask worker leave."""
    await dask_scheduler.retire_workers(workers=[slot])
