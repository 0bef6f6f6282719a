"""What the process of the chief says of other processes that are started by hand."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.by_hand import _log_for_all, serve_by_hand
from psflow.ps_runtime.roles.events import LogMessage, RoleLost, RoleStarted
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from psflow.ps_runtime.specs.roles import RoleId

WORKER = RoleId.parse("worker-1")


@pytest.mark.parametrize(
    ("is_there", "words"),
    [
        (False, "worker-1 is lost: it is gone; start its process again by the same command"),
        (True, "worker-1 begins again in its process: it is gone"),
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
        serve_by_hand(task, str(tmp_path / "model"), 0.0, never_stop)


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
