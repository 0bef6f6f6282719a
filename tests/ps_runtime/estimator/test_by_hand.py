"""Messages of the chief's process about other processes of a manual cluster."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from psflow import Estimator, EstimatorSpec, EvalSpec, RunConfig, Server, TrainSpec, train_and_evaluate
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.manual_cluster import _log_for_all, serve_manual_role
from psflow.ps_runtime.roles.events import LogMessage, RoleLost, RoleStarted
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from psflow.ps_runtime.specs.roles import RoleId

WORKER = RoleId.parse("worker-1")


def no_model(features: Any) -> EstimatorSpec:
    raise AssertionError("it is refused before that")


@pytest.mark.parametrize(
    ("is_there", "words"),
    [
        (False, "worker-1 is lost: it is gone; start its process again with the same command"),
        (True, "worker-1 restarts in its process: it is gone"),
    ],
)
def test_only_a_process_that_is_gone_is_to_be_started_again(
    is_there: bool, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    def has_joined(role: RoleId) -> bool:
        assert role == WORKER
        return is_there

    _log_for_all(has_joined, RoleLost("it is gone", role="worker-1", incarnation=1))
    _log_for_all(has_joined, RoleStarted(role="worker-1", incarnation=2))
    assert caplog.messages == [words]


@pytest.mark.parametrize("kind", ["ps", "worker", "evaluator"])
def test_a_model_dir_that_is_a_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    (tmp_path / "model").touch()
    task = ClusterTask(ClusterAddresses("a:1", ("b:1",), ("c:1",)), TaskType(kind), 0)
    with pytest.raises(UsageError, match=r"^model_dir .*/model: expected a directory, but .*/model is a file; choose"):
        serve_manual_role(task, str(tmp_path / "model"), 0.0, never_stop)


def test_a_model_dir_of_another_user_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FileStore, name: str) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", self.path(name))

    (tmp_path / "job.json").touch()
    monkeypatch.setattr(FileStore, "read", refuse)
    task = ClusterTask(ClusterAddresses("a:1", ps=("c:1",)), TaskType.CHIEF, 0)
    estimator = Estimator(no_model, config=RunConfig(str(tmp_path), cluster=task))
    words = (
        rf"^model_dir {tmp_path}: {tmp_path}/job.json cannot be read: Permission denied; start all processes as the "
    )
    with pytest.raises(UsageError, match=words):
        train_and_evaluate(estimator, TrainSpec(pytest.fail), EvalSpec(pytest.fail))


@pytest.mark.parametrize("protocol", ["s3", "gs", "memory"])
def test_processes_meet_in_a_directory(protocol: str) -> None:
    task = ClusterTask(ClusterAddresses("a:1", ps=("c:1",)), TaskType.PS, 0)
    words = rf"^model_dir {protocol}://bucket/model: the processes meet in a directory; choose one on a disk that all"
    with pytest.raises(UsageError, match=words):
        serve_manual_role(task, f"{protocol}://bucket/model", 0.0, never_stop)
    with pytest.raises(UsageError, match=words):
        Server({"ps": ["c:1"], "worker": ["a:1"]}, "ps", 0).join(f"{protocol}://bucket/model")


@pytest.mark.parametrize(
    ("role", "level", "said"),
    [
        ("ps-0", logging.WARNING, ["ps-0: worker-0 did not push, and others wait"]),
        ("ps-0", logging.INFO, []),
        ("worker-0", logging.WARNING, []),
    ],
)
def test_warnings_of_a_ps_are_those_of_all(
    role: str, level: int, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    message = LogMessage(level, "psflow", "worker-0 did not push, and others wait", role=role, incarnation=1)
    _log_for_all(lambda role: True, message)
    assert caplog.messages == said
