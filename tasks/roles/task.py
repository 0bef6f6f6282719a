"""A role of a job as a Prefect task run of its own: it waits for the role and takes over how it ended."""

from __future__ import annotations

import threading
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled

from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import RoleFailedError, StoppedError, TransportError
from psflow.ps_runtime.specs.roles import RoleId
from psflow.tasks.roles.logs import RoleLogs

__all__ = ["run_role"]

SLICE_SECS = 0.5
LAST_SECS = 1.0
"""For a role that is to end, and of which nothing is known yet."""


@task(name="role", task_run_name="{role}", cache_policy=NO_CACHE, persist_result=False, log_prints=False)
def run_role(role: RoleId, job: ClusterJob, stop: threading.Event, logs: RoleLogs) -> dict[str, Any] | State[Any]:
    """Wait in slices until `role` has ended; return its report. Meanwhile what it logs is the log of this task run.

    Parameters
    ----------
    role : RoleId
        A role of `job`.
    job : ClusterJob
        Started.
    stop : threading.Event
        Set when the flow no longer waits for roles that do not end.
    logs : RoleLogs
        Hands on what the role logs.

    Raises
    ------
    RoleFailedError
        If it failed; why the job fails is logged once, by the role that caused it, before any role ends so.
    """
    with logs.to(str(role), get_run_logger()):
        return _end_of(role, job, stop, logs)


def _end_of(role: RoleId, job: ClusterJob, stop: threading.Event, logs: RoleLogs) -> dict[str, Any] | State[Any]:
    is_last = False
    while not is_last:
        is_last = stop.is_set()  # then it is asked for once more: it may have ended before
        try:
            report = job.wait(role, LAST_SECS if is_last else SLICE_SECS)
        except StoppedError as error:
            return Cancelled(message=str(error))
        except Exception as error:  # whatever it failed with
            return _failed(role, error, job.root_cause(), logs)
        if report is not None:
            return report
    return Cancelled(message=f"{role} did not end in time")


def _failed(role: RoleId, error: Exception, cause: RoleFailedError, logs: RoleLogs) -> State[Any]:
    """Raise how a role has failed, or return how it was ended because of another."""
    if isinstance(error, TransportError) and isinstance(cause.__cause__, StoppedError):
        return Cancelled(message=str(error))  # all roles were ended, and this one noticed by its peers
    logs.tell_failure(cause)
    if isinstance(error, TransportError) and cause.role != str(role):
        return Cancelled(message=f"{role} ended because {cause}")
    raise RoleFailedError(str(role), cause.error if cause.role == str(role) else repr(error))
