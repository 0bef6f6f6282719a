"""Runs of one deployment that do not overlap: each holds a lease while it runs, and the next one skips or waits.

The lease is a lock of the operating system: free as soon as its holder ends, however that happens, whether the Prefect
server is there or not. It is of one host, or of those that share Prefect's home and its locks.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from typing import ParamSpec, TypeVar, assert_never, get_args

from prefect import get_run_logger
from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.states import Cancelled

from psflow.flows.parameters.stages import Overlap
from psflow.flows.prefect_runs.flow_run_labels import label_flow_run
from psflow.flows.stopping.interrupts import INTERRUPTIONS, Interrupts
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.config.environment import HOW_TO_SET_HOME, prefect_home
from psflow.ps_runtime.errors import ConfigError

__all__ = ["Lease", "overlap_tag", "without_overlap"]

FOLDER = "psflow-leases"
POLL_SECS = 0.5
TIME = "%Y-%m-%d %H:%M:%S UTC"

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lease, or had it last; times are in seconds since 1970."""

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
    """The right of one run of a deployment to run.

    Raises
    ------
    ConfigError
        If Prefect's home cannot be written to, or has no locks.

    Notes
    -----
    A process opens the lease of a deployment once at a time: to close a file gives up all its locks of that file. In
    return no child holds them: forked ones inherit the descriptor, but not a lock of this kind.
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
        """Become its holder; return who else is, or still was when this run was `due`, or None. Does not block."""
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
        """Leave it to the next one."""
        if self._mine is not None:
            with suppress(OSError):  # what is written then is of a process that has ended
                self._write(replace(self._mine, until=time.time()))
        os.close(self._descriptor)

    def _holder(self) -> str:
        """Return who has it, and since when."""
        holder = self._read()
        if holder is None or holder.until is not None or holder.process.is_alive() is False:  # that of an earlier one
            return "another run of the deployment has just begun"
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
    """Return what runs the `function` of a flow when the lease of the deployment allows it, if that has a policy."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R | State[None]:
        context = FlowRunContext.get()
        flow_run = None if context is None else context.flow_run
        policy = None if flow_run is None else _policy(flow_run.tags)
        if flow_run is None or policy is None or flow_run.deployment_id is None:  # None: a flow within another one
            return function(*args, **kwargs)
        label_flow_run()
        with closing(Lease(str(flow_run.deployment_id), str(flow_run.id), flow_run.name)) as lease:
            refusal = _refusal(lease, policy, flow_run)
            return function(*args, **kwargs) if refusal is None else refusal

    run.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined] # names are not known here
    return run


def overlap_tag(policy: Overlap) -> str:
    """Return the tag of a deployment whose runs must not overlap; Prefect gives it to each of its runs."""
    return f"overlap:{policy}"


def _policy(tags: Sequence[str]) -> Overlap | None:
    policies: tuple[Overlap, ...] = get_args(Overlap)
    return next((policy for policy in policies if overlap_tag(policy) in tags), None)


def _refusal(lease: Lease, policy: Overlap, run: FlowRun) -> State[None] | None:
    """Take the lease, waiting for it if that is the policy; return the state of a run that is not to begin.

    A run that is tried again waits: one that was due between its attempts may have the lease.
    """
    is_retry = run.run_count > 1
    due = run.expected_start_time
    who = lease.take(due.timestamp() if policy == "skip" and not is_retry and due is not None else None)
    if who is None:
        return None
    if is_retry:
        get_run_logger().warning("waiting: %s; a run that is tried again waits for its turn", who)
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
    """Take the lease once it is free; return the state of a run that is to end before that."""
    with Interrupts() as interrupts:
        try:
            while lease.take() is not None:
                interrupts.check()
                time.sleep(POLL_SECS)
        except INTERRUPTIONS as interrupted:
            return Cancelled(message=f"{interrupted}; it had not begun")
    return None


def _text(secs: float) -> str:
    return datetime.fromtimestamp(secs, UTC).strftime(TIME)
