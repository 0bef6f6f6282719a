"""A role of a job as a Prefect task run of its own: it waits for the role and takes over how it ended."""

from __future__ import annotations

import threading
from typing import Any

from prefect import Task, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import task_run
from prefect.states import Cancelled

from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import RoleFailedError, RoleLostError, StoppedError, TransportError
from psflow.ps_runtime.specs.roles import RoleId
from psflow.tasks.roles.logs import RoleLogs

__all__ = ["run_role"]

SLICE_SECS = 0.5
LAST_SECS = 1.0
"""For a role that is to end, and of which nothing is known yet."""
MAX_RETRIES = 1000
"""More than a role has lives: the job says when it gives up."""


def _begins_again(role_task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Return whether the task run failed of a life that was lost, so that the next one is a retry of it."""
    return isinstance(state.data, RoleLostError)


@task(
    name="role",
    task_run_name="{role}",
    cache_policy=NO_CACHE,
    persist_result=False,
    log_prints=False,
    retries=MAX_RETRIES,
    retry_condition_fn=_begins_again,
)
def run_role(role: RoleId, job: ClusterJob, stop: threading.Event, logs: RoleLogs) -> dict[str, Any] | State[Any]:
    """Wait in slices until `role` has ended; return its report. Meanwhile what it logs is the log of this task run.

    A life of a role that is lost fails this task run, and the next life is a retry of it.

    Raises
    ------
    RoleFailedError
        If it failed; why the job fails is logged once, by the role that caused it, before any role ends so.
    """
    with logs.to(str(role), get_run_logger()):
        return _end_of(role, job, stop, logs)


def _end_of(role: RoleId, job: ClusterJob, stop: threading.Event, logs: RoleLogs) -> dict[str, Any] | State[Any]:
    is_last, num_lost = False, max(0, task_run.run_count - 1)  # 0 outside of a task run
    while not is_last:
        is_last = stop.is_set()  # then it is asked for once more: it may have ended before
        try:
            report = job.wait(role, LAST_SECS if is_last else SLICE_SECS, num_lost)
        except StoppedError as error:
            return Cancelled(message=str(error))
        except RoleLostError as loss:
            if loss is not job.error(role):
                raise  # a new life may follow
            return _failed(role, loss, job.root_cause(), logs)
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
