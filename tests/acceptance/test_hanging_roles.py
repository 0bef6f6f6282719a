"""A ps, a chief and an evaluator that hang are ended, and restart; a chief that computes for long is not."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

from psflow import Estimator, EvalSpec, RunConfig, TrainSpec
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Checkpoint, Event, RoleLost
from psflow.ps_runtime.specs.roles import RoleId
from tests.acceptance.hanging_scene import CountingModel, StopOnFile, endless, stop_serving
from tests.acceptance.test_lost_roles import dask_process
from tests.free_ports import free_port

pytestmark = [pytest.mark.piece(number=6), pytest.mark.timeout(900), pytest.mark.cluster, pytest.mark.measured]

TIMEOUT_SECS = 600.0
PROBE_SECS = 10.0
BUSY_SECS = 3 * PROBE_SECS


class Scene:
    """A job, and what becomes of it."""

    def __init__(self, directory: Path, busy_secs: float = 0.0) -> None:
        self.events: list[Event] = []
        self.model_dir = str(directory / "job")
        self._stop = directory / "stop"
        self._deadline = time.monotonic() + TIMEOUT_SECS
        config = RunConfig(tf_random_seed=1, save_checkpoints_steps=50)
        self.estimator = Estimator(CountingModel(busy_secs), self.model_dir, config)
        self._train_spec = TrainSpec(endless, hooks=[StopOnFile(self._stop)])
        self._eval_spec = EvalSpec(endless, steps=1, start_delay_secs=0, throttle_secs=0)

    @contextmanager
    def started(self, client: Client) -> Iterator[ClusterJob]:
        """Start the job for the time of a block."""
        with (
            Attempt(self.estimator, self._train_spec, (self._eval_spec,)) as attempt,
            ClusterJob(client, attempt.job(), self.events.append, probe_timeout_secs=PROBE_SECS) as run,
        ):
            run.start(AdmissionPolicy(60))
            yield run

    @property
    def losses(self) -> list[RoleLost]:
        """What was lost."""
        return [event for event in self.events if isinstance(event, RoleLost)]

    def has_saved_since(self, moment: float) -> bool:
        """Return whether a checkpoint was made after a moment, in Unix time."""
        return any(isinstance(event, Checkpoint) and event.time > moment for event in self.events)

    def joined(self, run: ClusterJob, look: Callable[[], bool]) -> dict[str, Any]:
        """Train until `look` returns that all has happened; return what the chief says of the job."""

        def check() -> None:
            assert time.monotonic() < self._deadline, self.losses
            if look():
                self._stop.touch()

        return dict(run.join(check)["chief-0"]["statistics"]["job"])

    def check_counts(self, job: dict[str, Any]) -> None:
        """Fail if a push was lost or counted twice, or a checkpoint was not evaluated exactly once."""
        assert self.estimator.get_variable_value("num_updates") == job["global_step"]
        store = CheckpointStore(self.model_dir)
        assert not [step for step in store.steps() if store.wrong_sizes(step)]
        lines = Path(self.model_dir, "evaluations.jsonl").read_text().splitlines()
        evaluated = [(facts["global_step"], facts["checkpoint_saved_at"]) for facts in map(json.loads, lines)]
        assert len(set(evaluated)) == len(evaluated)
        assert set(evaluated) >= set(store.saved_at().items())


def slot_of(run: ClusterJob, role: str) -> str:
    """Return the Dask worker of a role."""
    return run._supervisor.slots()[RoleId.parse(role)]


def test_a_role_that_hangs_is_ended_and_begins_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    due = [("ps-0", "answer"), ("evaluator-0", "answer"), ("chief-0", "answer"), ("ps-0", "serve")]
    hung: list[tuple[int, float]] = []

    with open_cluster(None, 3, 300) as client, scene.started(client) as run:

        def look() -> bool:
            num_lost = len(scene.losses)
            if num_lost < len(hung) or not scene.has_saved_since(scene.losses[-1].time if num_lost else 0.0):
                return False
            if num_lost == len(due):
                return True
            role, action = due[num_lost]
            slot = slot_of(run, role)
            [pid] = client.run(os.getpid, workers=[slot]).values()
            hung.append((pid, time.time()))
            if action == "answer":
                os.kill(pid, signal.SIGSTOP)
            else:
                client.run(stop_serving, run._futures.topic, workers=[slot])
            return False

        job = scene.joined(run, look)
        assert not [pid for pid, _ in hung if psutil.pid_exists(pid)]
    assert [loss.role for loss in scene.losses] == [role for role, _ in due]
    for loss, (_, action), (_, at) in zip(scene.losses, due, hung, strict=True):
        assert loss.reason.startswith(f"it did not {action} for {PROBE_SECS:g} s, so its Dask worker tls://")
        assert loss.time - at >= PROBE_SECS
    scene.check_counts(job)


@pytest.mark.ci
def test_a_ps_without_a_nanny_that_goes_on_later_finds_its_life_over(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    address = f"tcp://127.0.0.1:{free_port()}"
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    stopped: list[int] = []
    resumed_at: list[float] = []
    with ExitStack() as stack:
        stack.enter_context(dask_process(tmp_path, "scheduler", "--port", address.rpartition(":")[2], *common))
        for _ in range(4):
            arguments = ["worker", address, "--no-nanny", "--nthreads", "1", *common]
            stack.enter_context(dask_process(tmp_path, *arguments))
        client = stack.enter_context(Client(address, timeout=60))
        client.wait_for_workers(4, timeout=200)
        run = stack.enter_context(scene.started(client))
        stack.callback(resume, stopped)

        def look() -> bool:
            if not stopped and scene.has_saved_since(0.0):
                [pid] = client.run(os.getpid, workers=[slot_of(run, "ps-0")]).values()
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
            elif not resumed_at and scene.losses and scene.has_saved_since(scene.losses[0].time):
                os.kill(stopped[0], signal.SIGCONT)
                resumed_at.append(time.time())
            if not resumed_at or not scene.has_saved_since(resumed_at[0]):
                return False
            return has_ended(stopped[0])

        job = scene.joined(run, look)
    assert [loss.role for loss in scene.losses] == ["ps-0"]
    scene.check_counts(job)


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def resume(stopped: list[int]) -> None:
    """Have a process go on, so that it can end."""
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_a_chief_that_computes_for_long_is_not_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(tmp_path, BUSY_SECS)
    with open_cluster(None, 3, 300) as client, scene.started(client) as run:
        job = scene.joined(run, lambda: scene.has_saved_since(0.0))
    assert scene.losses == []
    assert f"chief-0: it did not answer for {PROBE_SECS:g} s, but its process computes" in caplog.text
    scene.check_counts(job)
