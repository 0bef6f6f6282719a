"""A job whose processes somebody has started, one for each role: what each of them does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.cluster.joining import join
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.cluster.leading import lead
from psflow.ps_runtime.errors import ModelDirError, UsageError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.export_bundle import ModelWriter
from psflow.ps_runtime.roles.events import Event, LogMessage, RoleLost
from psflow.ps_runtime.specs.cluster_task import ClusterTask
from psflow.ps_runtime.specs.roles import Role, RoleId

__all__ = ["run_by_hand"]

OnEvent = Callable[[Event], None]


def run_by_hand(
    task: ClusterTask,
    model_dir: str,
    make_attempt: Callable[[], Attempt],
    writer: ModelWriter | None,
    on_event: OnEvent | None,
    *,
    evaluator: bool,
) -> dict[str, dict[str, Any]]:
    """Be one process of a job until all of it has ended; return the report of each role where this is the chief.

    Parameters
    ----------
    task : ClusterTask
        This process.
    model_dir : str
        Of the job.
    make_attempt : callable
        Plans the job; the chief calls it once other processes can join.
    writer : ModelWriter or None
        Writes what the exporters select.
    on_event : callable or None
        The chief's takes the events of all roles, another one those of its own. None: each process logs its own.
    evaluator : bool
        Whether the job has an evaluator.

    Raises
    ------
    UsageError
        If this process is no role, or the cluster or the model_dir is none for a job; else as `lead` and `join` do.
    ModelDirError
        If the model_dir is that of a living job.
    RoleFailedError, StoppedError
        If the job failed: on the chief, and in other processes.
    """
    role = _checked_role(task, model_dir)
    if role.role is not Role.CHIEF:
        join(task.cluster, role, model_dir, _log_own if on_event is None else on_event)
        return {}
    if (refusal := JobFile(model_dir).refusal()) is not None:  # before its certificate is replaced
        raise ModelDirError((refusal,))
    of_own, of_all = (_log_own, _log_loss) if on_event is None else (_ignore, on_event)
    with lead(task.cluster, model_dir, evaluator=evaluator, on_event=of_own) as led, make_attempt() as attempt:
        job = attempt.job(writer)
        slots = led.await_processes(job.config.session_creation_timeout_secs, attempt.check)
        with ClusterJob(led.client, job, of_all) as run:
            run.start_at(slots, led.slot_of, attempt.check)
            return run.join(attempt.check)


def _checked_role(task: ClusterTask, model_dir: str) -> RoleId:
    if task.role is None:
        raise UsageError(
            (f"TF_CONFIG: task.type is {task.task_type}, which is no role of a job; start each role of cluster",)
        )
    if not task.cluster.ps:
        raise UsageError(("TF_CONFIG: cluster has no ps; add one, or leave cluster out to train in one process",))
    if not FileStore(model_dir).is_local:
        raise UsageError(
            (f"model_dir {model_dir}: these processes meet in a directory; choose one on a disk that all hosts share",)
        )
    return task.role


def _log_own(event: Event) -> None:
    """Log what a role of this process tells; what it logs is in the log of this process anyway."""
    if not isinstance(event, LogMessage):
        Attempt.log_event(event)


def _log_loss(event: Event) -> None:
    """Log what no role can tell of itself; the rest is in the log of the process that it came from."""
    if isinstance(event, RoleLost):
        Attempt.log_event(event)


def _ignore(event: Event) -> None:
    """Leave an event to whoever else takes it."""
