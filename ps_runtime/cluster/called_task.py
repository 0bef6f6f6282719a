"""Calls a function in a Dask task, once, and only while its owner waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distributed import get_worker

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.call_events import OPEN, call_event, ended, event_name, returned, running, started
from psflow.ps_runtime.cluster.cluster_event import ClusterEvent
from psflow.ps_runtime.cluster.event_barrier import EventBarrier
from psflow.ps_runtime.cluster.failures import raised_at
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
from psflow.ps_runtime.cluster.role_task import Liveness
from psflow.ps_runtime.cluster.scheduler_rpc import ask, put
from psflow.ps_runtime.errors import RoleFailedError, RoleLostError, StoppedError
from psflow.ps_runtime.shipping.pickles import unpickled
from psflow.ps_runtime.specs.roles import RoleId


@dataclass(frozen=True)
class Surroundings:
    """The view that a called function has of its cluster."""

    check: Callable[[], None]
    barrier: EventBarrier | None


def call_role(pickled: bytes, role: RoleId, topic: str, others: Sequence[RoleId] | None) -> None:
    """Call a function as one task. The body of a Dask task.

    Raises
    ------
    RoleFailedError
        If the function calls ``sys.exit`` with another code than 0 or None, which is a return.
    StoppedError
        If its task is cancelled while the scheduler does not answer.
    WaitTimeoutError
        If the scheduler is silent for minutes.
    """
    leave_quickly()
    liveness = Liveness.of_this_task(str(role))
    worker = get_worker()
    event = partial(call_event, worker, topic, liveness.check)
    has_begun = False
    try:
        event(running(role)).set()  # before it looks whether it may run: the owner waits for tasks that do
    except BaseException:
        put(worker, partial(_leave, topic, role, has_begun))  # a late message may still set it
        raise
    try:
        if not event(OPEN).is_set():  # it was cancelled before the scheduler had heard of it
            raise StoppedError(str(role), "its client has disconnected")
        if event(returned(role)).is_set():  # Dask restarts the tasks of a lost process
            return
        if event(started(role)).is_set():
            raise RoleLostError(str(role), "its Dask worker was lost; start again")
        has_begun = True
        event(started(role)).set()
        _call(pickled, role, Surroundings(liveness.check, _barrier(event, role, others, liveness.check)))
        event(returned(role)).set()
    finally:
        ask(worker, partial(_leave, topic, role, has_begun), never_stop)  # also where it is cancelled


async def _leave(topic: str, role: RoleId, has_begun: bool, scheduler: Any) -> None:
    """Report that a task is over: to the other tasks, and to the owner."""
    if has_begun:
        await scheduler.event_set(name=event_name(topic, ended(role)))
    await scheduler.event_clear(name=event_name(topic, running(role)))


def _barrier(
    event: Callable[[str], ClusterEvent],
    role: RoleId,
    others: Sequence[RoleId] | None,
    check: Callable[[], None],
) -> EventBarrier | None:
    if others is None:
        return None
    return EventBarrier(event, role, others, lambda one: event(ended(one)).is_set(), check)


def _call(pickled: bytes, role: RoleId, surroundings: Surroundings) -> None:
    try:
        unpickled(pickled)(surroundings)
    except SystemExit as left:  # it would end the Dask worker, which then counts as lost
        if left.code not in (None, 0):
            raise RoleFailedError(str(role), f"it called sys.exit({left.code!r}){raised_at(left)}") from None
