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
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import ParamSpec, TypeVar, assert_never, get_args

from prefect import get_run_logger
from prefect.client.schemas.objects import State
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

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lease."""

    run_id: str
    name: str
    since: str
    process: ProcessId

    def __str__(self) -> str:
        return f"run {self.name!r} ({self.run_id}) has been running since {self.since}"


class Lease:
    """The right of one run of a deployment to run.

    Parameters
    ----------
    deployment_id, run_id, name : str
        Of the deployment, and of the run that asks for it.

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
        self._is_held = False
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._fault(error) from None

    def take(self) -> bool:
        """Become its holder, unless another process is; return whether this one is. Does not block."""
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        except OSError as error:
            raise self._fault(error) from None
        self._is_held = True
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        me = Holder(self._run_id, self._name, since, ProcessId.current())
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(asdict(me)).encode(), 0)
        return True

    def holder(self) -> str:
        """Return who has it, and since when."""
        try:
            facts = json.loads(os.pread(self._descriptor, 1 << 16, 0))
            holder = Holder(**{**facts, "process": ProcessId(**facts["process"])})
        except (KeyError, TypeError, ValueError):
            holder = None
        if holder is None or holder.process.is_alive() is False:  # that of an earlier one, which was killed
            return "another run of the deployment has just begun"
        return str(holder)

    def close(self) -> None:
        """Leave it to the next one."""
        if self._is_held:
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _fault(self, error: OSError) -> ConfigError:
        return ConfigError((f"{self._path} cannot be locked: {error.strerror}; {HOW_TO_SET_HOME}",))


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
            refusal = _refusal(lease, policy)
            return function(*args, **kwargs) if refusal is None else refusal

    run.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined] # names are not known here
    return run


def overlap_tag(policy: Overlap) -> str:
    """Return the tag of a deployment whose runs must not overlap; Prefect gives it to each of its runs."""
    return f"overlap:{policy}"


def _policy(tags: Sequence[str]) -> Overlap | None:
    policies: tuple[Overlap, ...] = get_args(Overlap)
    return next((policy for policy in policies if overlap_tag(policy) in tags), None)


def _refusal(lease: Lease, policy: Overlap) -> State[None] | None:
    """Take the lease, waiting for it if that is the policy; return the state of a run that is not to begin."""
    if lease.take():
        return None
    why = f"{lease.holder()}; schedule.overlap is {policy}"
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
            while not lease.take():
                interrupts.check()
                time.sleep(POLL_SECS)
        except INTERRUPTIONS as interrupted:
            return Cancelled(message=f"{interrupted}; it had not begun")
    return None
