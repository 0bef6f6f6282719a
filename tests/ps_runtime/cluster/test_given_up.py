"""What a process that is started manually says of its end: the chief may have given it up, or be gone itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.chief_process import open_manual_cluster
from psflow.ps_runtime.cluster.role_worker import RoleWorker
from psflow.ps_runtime.cluster.worker_process import OwnProgram, _JoinAttempt, join_manual_cluster
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StoppedError
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses
from psflow.ps_runtime.specs.roles import RoleId
from tests.free_ports import free_address
from tests.limits import HANG_SECS

PS = RoleId.parse("ps-0")
GIVEN_UP = "gave up this process, which was silent for too long; start it again by the same command"
GONE = "is gone; look at its output, then start all processes again to resume"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("scheduler-remove-worker", GIVEN_UP),
        ("worker-heartbeat-missing", GIVEN_UP),
        ("worker-handle-scheduler-connection-broken", GONE),
        ("", GONE),
    ],
    ids=lambda text: text.partition(" ")[0],
)
def test_whether_the_chief_has_given_a_process_up_or_is_gone(reason: str, words: str) -> None:
    joining = _JoinAttempt(ClusterAddresses("localhost:1"), PS, "there", OwnProgram(), Deadline(0))
    worker = object.__new__(RoleWorker)  # one that has closed
    worker._end = reason
    with pytest.raises(StoppedError, match=rf"^ps-0 was stopped: the chief at localhost:1 {words}$"):
        joining._check_end(worker)


@pytest.mark.cluster
def test_a_process_that_the_scheduler_removes_says_that_the_chief_has_given_it_up(tmp_path: Path) -> None:
    cluster = ClusterAddresses(free_address(), ps=(free_address(),))

    def ignore(event: object) -> None:
        pass

    with (
        ThreadPoolExecutor() as pool,
        open_manual_cluster(cluster, str(tmp_path), {}, evaluator=False, on_event=ignore) as led,
    ):
        end = pool.submit(join_manual_cluster, cluster, PS, str(tmp_path), OwnProgram({}), ignore)
        slots = led.await_processes(HANG_SECS, never_stop)
        scheduler: Any = led.client.scheduler
        led.client.sync(
            scheduler.restart_workers,
            workers=[slots[PS]],
            timeout=HANG_SECS,
            wait_for_workers=False,
            on_error="return",
            stimulus_id="silent",
        )
        with pytest.raises(StoppedError, match=rf"^ps-0 was stopped: the chief at {cluster.chief} {GIVEN_UP}$"):
            end.result(HANG_SECS)
        assert led.client.status == "running"
