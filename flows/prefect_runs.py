"""Flow runs in Prefect: no credentials, no overlapping runs, a task run for each role.

The lease is a lock of the operating system: it is free as soon as its holder ends in any way, with or without a Prefect
server. It covers one host, or all hosts that share Prefect's home and its locks.
"""

from __future__ import annotations

import contextvars
import fcntl
import inspect
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, wraps
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, assert_never, get_args
from uuid import UUID

from prefect import Flow, Task, get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.futures import PrefectFuture
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed
from prefect.utilities.callables import ParameterSchema, parameter_schema

from psflow.flows.parameters.stages import Overlap
from psflow.flows.stopping.interrupts import INTERRUPTIONS, Interrupts
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.config.environment import HOW_TO_SET_HOME, prefect_home
from psflow.ps_runtime.deadline import Deadline, stop_clock
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.redaction import public
from psflow.tasks.connectivity import within
from psflow.tasks.owners import OWNER, owner_text


def label_flow_run(**labels: str) -> None:
    """Add this process as owner, and `labels`, to the labels of the current flow run.

    Does nothing outside a flow run. Blocks for one request.
    """
    if flow_run.id is not None:
        with get_client(sync_client=True) as client:
            client.update_flow_run_labels(UUID(flow_run.id), {OWNER: owner_text(), **labels})


END_SECS = 30.0
"""Timeout for task runs to take their final state. Prefect waits for their threads anyway, but marks late ones as
crashed."""


class TaskRuns:
    """Task runs that end with a ``with`` block."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._futures: list[PrefectFuture[Any]] = []

    def submit(self, task: Task[..., Any], *arguments: object) -> None:
        """Start a task run in a thread."""
        self._futures.append(task.submit(*arguments))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        try:
            self._await_all()
        except KeyboardInterrupt:
            self._await_all()
            raise

    def _await_all(self) -> None:
        deadline = Deadline(stop_clock.limited(END_SECS))
        for future in self._futures:
            future.wait(deadline.remaining_secs)


FOLDER = "psflow-leases"
POLL_SECS = 0.5
TIME = "%Y-%m-%d %H:%M:%S UTC"

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Holder:
    """The current or last holder of a lease; times are in seconds since 1970."""

    run_id: str
    name: str
    since: float
    process: ProcessId
    until: float | None = None

    def __str__(self) -> str:
        who, since = f"run {self.name!r} ({self.run_id})", _text(self.since)
        if self.until is None:
            return f"{who} has been running since {since}"
        return f"{who} ran from {since} until {_text(self.until)}, after this one was due"


class Lease:
    """A lock that lets one run of a deployment run at a time.

    Raises ConfigError if Prefect's home cannot be written to, or has no locks.

    Notes
    -----
    A process opens the lease of a deployment only once: closing any descriptor of a file releases all locks of the
    process on it. No child holds them: forks inherit the descriptor, but not a lock of this kind.
    """

    def __init__(self, deployment_id: str, run_id: str, name: str) -> None:
        self._path = prefect_home() / FOLDER / deployment_id
        self._run_id, self._name = run_id, name
        self._mine: Holder | None = None
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._fault(error) from None

    def take(self, due: float | None = None) -> str | None:
        """Acquire the lease, or return its holder, also one that still ran when this run was `due`. Does not block."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return self._holder()
        except OSError as error:
            raise self._fault(error) from None
        last = self._read()
        if due is not None and last is not None and last.until is not None and due < last.until:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)
            return str(last)
        self._mine = Holder(self._run_id, self._name, time.time(), ProcessId.current())
        try:
            self._write(self._mine)
        except OSError as error:
            raise self._fault(error) from None
        return None

    def close(self) -> None:
        """Release the lease."""
        if self._mine is not None:
            with suppress(OSError):  # the file then names a process that has ended
                self._write(replace(self._mine, until=time.time()))
        os.close(self._descriptor)

    def _holder(self) -> str:
        """Describe the holder, and since when it holds the lease."""
        holder = self._read()
        if holder is None or holder.until is not None or holder.process.is_alive() is False:  # of an earlier run
            return "another run of the deployment has just started"
        return str(holder)

    def _read(self) -> Holder | None:
        try:
            facts = json.loads(os.pread(self._descriptor, 1 << 16, 0))
            return Holder(**{**facts, "process": ProcessId(**facts["process"])})
        except (KeyError, TypeError, ValueError):
            return None

    def _write(self, holder: Holder) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(asdict(holder)).encode(), 0)

    def _fault(self, error: OSError) -> ConfigError:
        what = f"{self._path} cannot be locked: {error.strerror}"
        return ConfigError((f"{what}; {HOW_TO_SET_HOME}, on a file system that has locks",))


def without_overlap(function: Callable[P, R]) -> Callable[P, R | State[None]]:
    """Wrap the `function` of a flow: run it under the lease of the deployment, if that has a policy."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | State[None]:
        context = FlowRunContext.get()
        flow_run = None if context is None else context.flow_run
        policy = None if flow_run is None else _policy(flow_run.tags)
        if flow_run is None or policy is None or flow_run.deployment_id is None:  # None: a subflow
            return function(*args, **kwargs)
        label_flow_run()
        with closing(Lease(str(flow_run.deployment_id), str(flow_run.id), flow_run.name)) as lease:
            refusal = _refusal(lease, policy, flow_run)
            return function(*args, **kwargs) if refusal is None else refusal

    run.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined] # unknown names
    return run


def overlap_tag(policy: Overlap) -> str:
    """Return the tag of a deployment without overlapping runs; Prefect copies it to each run."""
    return f"overlap:{policy}"


def _policy(tags: Sequence[str]) -> Overlap | None:
    policies: tuple[Overlap, ...] = get_args(Overlap)
    return next((policy for policy in policies if overlap_tag(policy) in tags), None)


def _refusal(lease: Lease, policy: Overlap, run: FlowRun) -> State[None] | None:
    """Take the lease, waiting if the policy says so; return the state of a run that must not start.

    A retried run waits: a run that was due between its attempts may hold the lease.
    """
    is_retry = run.run_count > 1
    due = run.expected_start_time
    who = lease.take(due.timestamp() if policy == "skip" and not is_retry and due is not None else None)
    if who is None:
        return None
    if is_retry:
        get_run_logger().warning("waiting: %s; a retried run waits for the lease", who)
        return _waited(lease)
    why = f"{who}; schedule.overlap is {policy}"
    match policy:
        case "skip":
            get_run_logger().warning("skipped: %s", why)
            return Cancelled(name="Skipped", message=f"skipped: {why}")
        case "queue":
            get_run_logger().warning("waiting: %s", why)
            return _waited(lease)
        case _:
            assert_never(policy)


def _waited(lease: Lease) -> State[None] | None:
    """Wait for the lease; return the state of a run that is interrupted meanwhile."""
    with Interrupts() as interrupts:
        try:
            while lease.take() is not None:
                interrupts.check()
                time.sleep(POLL_SECS)
        except INTERRUPTIONS as interrupted:
            return Cancelled(message=f"{interrupted}; it had not started")
    return None


def _text(secs: float) -> str:
    return datetime.fromtimestamp(secs, UTC).strftime(TIME)


ANSWER_SECS = 5.0

_log = logging.getLogger(__name__)


class PublicFlow(Flow[P, R]):
    """A flow whose parameters are recorded without credentials."""

    @cached_property
    def parameters(self) -> ParameterSchema:  # type: ignore[override]
        """The schema of the parameters, made at its first use: it takes a third of a second, and a run needs none."""
        return parameter_schema(self.fn)

    def serialize_parameters(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters to record; Prefect already has those of a deployment."""
        return {name: public(value) for name, value in super().serialize_parameters(parameters).items()}


def public_flow(
    name: str, flow_run_name: Callable[[], str] | str
) -> Callable[[Callable[P, R]], PublicFlow[P, R | State[None]]]:
    """Return a decorator like ``prefect.flow``, for a flow without persisted results."""

    def decorate(function: Callable[P, R]) -> PublicFlow[P, R | State[None]]:
        vars(function)["__signature__"] = inspect.Signature()  # so Prefect makes no schema
        flow = PublicFlow[P, R | State[None]](function, name=name, flow_run_name=flow_run_name, persist_result=False)
        for made in (vars(function), vars(flow)):
            del made["__signature__"]
        del vars(flow)["parameters"]
        flow.fn = _with_own_end(without_overlap(function))  # after Prefect took the version from the flow's file
        return flow

    return decorate


def _with_own_end(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap the `function` of a flow: set the final state of a run that ended while it was being cancelled.

    Prefect itself accepts only Cancelled for such a run, and would show it as Cancelling forever.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            result = function(*args, **kwargs)
        except Exception:
            _leave_cancelling(Failed())
            raise
        if not isinstance(result, State):
            _leave_cancelling(Completed())
        return result

    return run


def _leave_cancelling(state: State[Any]) -> None:
    """Set `state` on the current flow run if it is being cancelled; Prefect then sets it again, with its message."""
    run_id = UUID(flow_run.id)
    context = contextvars.copy_context()  # holds Prefect's settings, which name the server

    def leave() -> None:
        with get_client(sync_client=True) as client:
            current = client.read_flow_run(run_id).state
            if current is not None and current.is_cancelling():
                client.set_flow_run_state(run_id, state, force=True)

    try:
        within(ANSWER_SECS, lambda: context.run(leave), "the Prefect API")
    except Exception as error:  # the run ends anyway; the next check reports it
        _log.debug("could not read whether the flow run is being cancelled: %s", error)
