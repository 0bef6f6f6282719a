"""Runs one role in a Dask worker, until its job is over or its task is cancelled."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Self, assert_never
from urllib.parse import urlsplit

from distributed import Worker, get_worker
from distributed.core import Status

from psflow.ps_runtime.checkpoint.owner_mark import job_mark
from psflow.ps_runtime.client.shard_client import Connect
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
from psflow.ps_runtime.cluster.fencing import SchedulerFence
from psflow.ps_runtime.cluster.graceful_shutdown import GracefulShutdown, shutdown_of
from psflow.ps_runtime.cluster.heartbeats import pulse_shown
from psflow.ps_runtime.cluster.loss_reports import receiving
from psflow.ps_runtime.cluster.role_worker import RoleWorker
from psflow.ps_runtime.errors import StoppedError, TransportError
from psflow.ps_runtime.one_thread import one_thread
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.evaluator import run_evaluator
from psflow.ps_runtime.roles.event_codec import encode_event, forwarded_logs
from psflow.ps_runtime.roles.events import Event, RoleEnded, RoleLeaving, RoleStarted
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.ps import run_ps
from psflow.ps_runtime.roles.trainer import run_worker, train
from psflow.ps_runtime.shipping.pickles import unpickled
from psflow.ps_runtime.specs.roles import Role, RoleId
from psflow.ps_runtime.specs.task_facts import TaskFacts
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.listeners import Address
from psflow.ps_runtime.transport.waiting import awake_secs

LOW_PRIORITY = 10
"""Of threads, whose usual one is 0; a busy processor gives them a tenth of its time."""


class _Unlogged(logging.Filter):
    """Keeps failures of some tasks out of Dask's log, which shows the traceback of every error."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: set[str] = set()

    def add(self, key: str) -> None:
        """Leave out the task `key`, whose job may be healthy."""
        self._keys.add(key)
        logging.getLogger("distributed.worker").addFilter(self)  # idempotent

    def filter(self, record: logging.LogRecord) -> bool:
        key = record.args[0] if isinstance(record.args, tuple) and record.args else None
        return not (isinstance(key, str) and key in self._keys)


_unlogged = _Unlogged()


def run_role(
    role: RoleId,
    incarnation: int,
    topic: str,
    pickled: bytes,
    addresses: Sequence[Address],
    *,
    is_alone: bool,
    first_step_at: float | None = None,
) -> dict[str, Any]:
    """Run `role` of a job; return its report. The body of a Dask task."""
    leave_quickly()
    worker = get_worker()
    with _shutdown(f"psflow-{topic}-{role}", worker, lambda: context.emit(RoleLeaving())) as shutdown:
        liveness = Liveness.of_this_task(str(role), shutdown, finishes_step=role.role is Role.WORKER)
        context = RoleContext(
            role,
            incarnation,
            liveness.check,
            sender(worker, topic),
            liveness.is_shutting_down,
            fence=SchedulerFence(worker, worker.get_current_task(), str(role), liveness.check),
            first_step_at=first_step_at,
        )
        context.emit(RoleStarted(socket.gethostname()))
        try:
            job = _as_seen_by(_opened(pickled, role), role, worker)  # which may import for long
            mark = job_mark(job.model_dir, job.owner, str(role), liveness.check)
            mark.find()
            context.fence = mark.after(context.fence)
            with one_thread(), forwarded_logs(context), mark.explaining():
                return _run(job, context, addresses, worker, topic, is_alone=is_alone)
        except (TransportError, StoppedError):  # the others have ended this incarnation, or gone on without it
            _unlogged.add(str(worker.get_current_task()))
            raise
        finally:
            context.emit(RoleEnded())


def sender(worker: Worker, topic: str) -> Callable[[Event], None]:
    """Return the function by which a task sends its events to its owner."""
    return lambda event: worker.log_event(topic, encode_event(event))


def _run(
    job: JobSpec, context: RoleContext, addresses: Sequence[Address], worker: Worker, topic: str, *, is_alone: bool
) -> dict[str, Any]:
    connect_functions = [ps_connect(address, job, f"ps-{i}") for i, address in enumerate(addresses)]
    training_loop = worker.training_loop if isinstance(worker, RoleWorker) else train
    match context.role.role:
        case Role.PS:
            # only ps-0 hears of losses; another ps may run in the same process
            with (
                receiving(topic, context.lost_replicas) if context.role.index == 0 else nullcontext(),
                pulse_shown(worker, topic, context.role, context.incarnation, context.pulse),
            ):
                return run_ps(job, context, str(urlsplit(worker.contact_address).hostname), is_alone=is_alone)
        case Role.CHIEF:
            return run_chief(job, context, connect_functions, training_loop)
        case Role.WORKER:
            return run_worker(job, context, connect_functions, training_loop)
        case Role.EVALUATOR:
            # only where no evaluator has joined, the process of the chief has this role, too
            stands_in = job.evaluator_may_be_missing and worker.name != str(context.role)
            return run_evaluator(job, context, connect_functions, only_final=stands_in)
        case unknown:
            assert_never(unknown)


def _shutdown(name: str, worker: Worker, report: Callable[[], None]) -> AbstractContextManager[GracefulShutdown | None]:
    """Return the graceful shutdown of its Dask worker; a process of a manual cluster closes after the job."""
    return nullcontext() if isinstance(worker, RoleWorker) else shutdown_of(name, worker, report)


def _opened(pickled: bytes, role: RoleId) -> JobSpec:
    """Return the job; the evaluator leaves the processors to roles that train, while it imports the same libraries."""
    job: JobSpec
    if role.role is Role.EVALUATOR:
        with ThreadPoolExecutor(1, initializer=_lower_priority) as other_thread:  # a priority cannot be raised again
            job = other_thread.submit(unpickled, pickled).result()
    else:
        job = unpickled(pickled)
    return job


def _lower_priority() -> None:
    """Have this thread run where no other one wants to."""
    if sys.platform.startswith("linux"):  # where a thread has a priority of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)


def _as_seen_by(job: JobSpec, role: RoleId, worker: Worker) -> JobSpec:
    """Return the job as one role sees it, with the input_fn of its own process if that has one."""
    train_spec = job.train_spec
    if isinstance(worker, RoleWorker) and worker.input_fn is not None:
        train_spec = replace(train_spec, input_fn=worker.input_fn)
    return replace(job, config=job.config.as_seen_by(_facts(job, role)), train_spec=train_spec)


def _facts(job: JobSpec, role: RoleId) -> TaskFacts:
    is_manual = job.config.cluster
    return TaskFacts.of(role, job.num_ps, job.num_workers) if is_manual is None else is_manual.cluster.facts_of(role)


def ps_connect(address: Address, job: JobSpec, peer: str) -> Connect:
    """Return the connect function of one ps."""

    def connect_to_ps(timeout_secs: float) -> Connection:
        awake = awake_secs(job.num_ps + job.num_workers + 1)
        return connect(address, job.transport, timeout_secs, peer, certificate=job.certificate, awake_secs=awake)

    return connect_to_ps


class Liveness:
    """Decides whether a role may continue: its task is executing, and its Dask worker is running.

    When the flow dies, the scheduler cancels its tasks; when the scheduler dies, the worker stops running.
    """

    def __init__(
        self,
        worker: Worker,
        key: Any,
        role: str,
        shutdown: GracefulShutdown | None = None,
        *,
        finishes_step: bool = False,
    ) -> None:
        self._worker = worker
        self._key = key
        self._role = role
        self._shutdown = shutdown
        self._finishes_step = finishes_step

    @classmethod
    def of_this_task(cls, role: str, shutdown: GracefulShutdown | None = None, *, finishes_step: bool = False) -> Self:
        """Return the liveness of the Dask task that runs in this thread."""
        worker = get_worker()
        return cls(worker, worker.get_current_task(), role, shutdown, finishes_step=finishes_step)

    def is_shutting_down(self) -> bool:
        """Return whether the role is to shut down before its next step, because its Dask worker closes."""
        return self._shutdown is not None and self._shutdown.is_due()

    def check(self) -> None:
        """Raise StoppedError if the role is to end."""
        has_time = self._shutdown is not None and self._shutdown.has_time()  # which reports it to the owner
        if self._worker.status not in (Status.running, Status.paused) and not (has_time and self._finishes_step):
            raise StoppedError(self._role, f"its Dask worker is {self._worker.status.name}")
        task = self._worker.state.tasks.get(self._key)
        if task is None or task.state not in ("executing", "long-running"):
            raise StoppedError(self._role, "its Dask task was cancelled")
