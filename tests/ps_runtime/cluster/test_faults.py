"""Exceptions of the user's code on a cluster: the first one of a kind costs a life, the second one the job."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from psflow import Estimator, RunConfig, SessionRunHook, TrainSpec
from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import RoleFailedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Event, RoleLost
from tests.ps_runtime.cluster.test_lost_workers import updates
from tests.ps_runtime.cluster.test_training import batches, endless

pytestmark = pytest.mark.cluster


class Fails(SessionRunHook):
    """Raises in each life of some roles, until there are so many files of it."""

    def __init__(self, directory: Path, *roles: str, times: int = 1) -> None:
        self.directory, self.roles, self.times = directory, roles, times

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Raise in the fifth step of a life."""
        session = run_context.session
        role = "chief" if session.is_chief else "worker"
        told = self.directory / role
        number = len(told.read_text()) if told.exists() else 0
        if role in self.roles and session.num_steps == 5 and number < self.times:
            told.write_text("x" * (number + 1))
            raise OSError(f"the disk is away, {number}")


def test_a_first_fault_costs_a_life_and_no_update(tmp_path: Path) -> None:
    counting = Estimator(updates, str(tmp_path / "job"), RunConfig(tf_random_seed=1, save_checkpoints_steps=50))
    events: list[Event] = []
    with (
        open_cluster(None, 3, 60) as client,
        Attempt(
            counting, TrainSpec(endless, 400, hooks=[Fails(tmp_path, "worker", "chief")]), None, num_workers=1
        ) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):
        run.start(AdmissionPolicy(10))
        reports = run.join()
    lost = {event.role: event.reason for event in events if isinstance(event, RoleLost)}
    assert set(lost) == {"chief-0", "worker-0"}
    assert all(
        "OSError('the disk is away, 0') at " in reason and "test_faults.py:" in reason for reason in lost.values()
    )
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 400
    assert counting.get_variable_value("num_updates") == 400


def test_with_a_first_fault_of_a_chief_that_trains_alone_training_goes_back(tmp_path: Path) -> None:
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=50, pipeline_depth=1)
    counting = Estimator(updates, str(tmp_path / "job"), config)
    events: list[Event] = []
    with (
        open_cluster(None, 2, 60) as client,
        Attempt(counting, TrainSpec(endless, 100, hooks=[Fails(tmp_path, "chief")]), None) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):
        run.start(AdmissionPolicy(10))
        reports = run.join()
    lost = [event for event in events if isinstance(event, RoleLost) and event.rolls_back]
    assert [event.role for event in lost] == ["chief-0"]
    assert "OSError('the disk is away, 0') at " in lost[0].reason
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 100
    assert counting.get_variable_value("num_updates") == 100


def test_the_second_fault_at_the_same_line_ends_the_job_with_it(tmp_path: Path) -> None:
    counting = Estimator(updates, str(tmp_path / "job"), RunConfig(tf_random_seed=1, save_checkpoints_steps=50))
    events: list[Event] = []
    with (
        open_cluster(None, 3, 60) as client,
        Attempt(
            counting, TrainSpec(endless, 10**8, hooks=[Fails(tmp_path, "worker", times=9)]), None, num_workers=1
        ) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):
        run.start(AdmissionPolicy(10))
        with pytest.raises(
            RoleFailedError, match=r"^worker-0 failed: OSError\('the disk is away, 1'\) at .*test_faults.py"
        ):
            run.join()
    assert [event.role for event in events if isinstance(event, RoleLost)] == ["worker-0"]


@dataclass(frozen=True)
class AwayOnce:
    """An input_fn whose file system is away at its first call in the process of a role."""

    mark: Path
    planned_in: int
    is_opaque: bool

    def __call__(self) -> Any:
        """Open the input, unless this is the first role to ask."""
        if os.getpid() != self.planned_in and not self.mark.exists():
            self.mark.touch()
            raise OSError(errno.EIO, "the mount is away")
        return batches() if self.is_opaque else endless()


@pytest.mark.parametrize("is_opaque", [True, False])
def test_a_mount_that_is_away_as_the_chief_opens_its_input_costs_a_life(tmp_path: Path, is_opaque: bool) -> None:
    input_fn = AwayOnce(tmp_path / "mark", os.getpid(), is_opaque)
    counting = Estimator(updates, str(tmp_path / "job"), RunConfig(tf_random_seed=1, save_checkpoints_steps=50))
    events: list[Event] = []
    with (
        open_cluster(None, 2, 60) as client,
        Attempt(counting, TrainSpec(input_fn, 10), None) as attempt,
        ClusterJob(client, attempt.job(), events.append) as run,
    ):
        run.start(AdmissionPolicy(10))
        reports = run.join()
    [lost] = [event for event in events if isinstance(event, RoleLost)]
    assert "the mount is away" in lost.reason
    assert reports["chief-0"]["statistics"]["job"]["global_step"] == 10
    assert counting.get_variable_value("num_updates") == 10
