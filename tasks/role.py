"""A role of a job as a Prefect task run of its own: it waits for the role and takes over how it ended."""

from __future__ import annotations

import threading
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled

from ps_runtime.cluster.launch import ClusterJob
from ps_runtime.errors import StoppedError
from ps_runtime.specs.roles import RoleId
from tasks.role_logs import RoleLogs

__all__ = ["run_role"]

SLICE_SECS = 0.5


@task(name="role", task_run_name="{role}", cache_policy=NO_CACHE, persist_result=False, log_prints=False)
def run_role(role: RoleId, job: ClusterJob, stop: threading.Event, logs: RoleLogs) -> dict[str, Any] | State[Any]:
    """Wait in slices until `role` has ended; return its report. Meanwhile what it logs is the log of this task run.

    Parameters
    ----------
    role : RoleId
    job : ClusterJob
        Started.
    stop : threading.Event
        Set when the flow no longer waits for roles that do not end.
    logs : RoleLogs

    Raises
    ------
    Exception
        What the role failed with.
    """
    with logs.to(str(role), get_run_logger()):
        return _end_of(role, job, stop)


def _end_of(role: RoleId, job: ClusterJob, stop: threading.Event) -> dict[str, Any] | State[Any]:
    while not stop.is_set():
        try:
            report = job.wait(role, SLICE_SECS)
        except StoppedError as error:
            return Cancelled(message=str(error))
        if report is not None:
            return report
    return Cancelled(message=f"{role} did not end in time")
