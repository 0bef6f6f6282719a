"""Calls a function in a Dask task, only while its owner waits for it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from distributed import get_worker

from psflow.ps_runtime.cluster.event_barrier import ClusterEvent, EventBarrier, ended
from psflow.ps_runtime.cluster.failures import raised_at
from psflow.ps_runtime.cluster.fast_exit import leave_quickly
from psflow.ps_runtime.cluster.role_task import Liveness, sender
from psflow.ps_runtime.errors import RoleFailedError, StoppedError
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import RoleEnded, RoleStarted
from psflow.ps_runtime.shipping.pickles import unpickled
from psflow.ps_runtime.specs.roles import RoleId


@dataclass(frozen=True)
class Surroundings:
    """The view that a called function has of its cluster."""

    check: Callable[[], None]
    barrier: EventBarrier | None


def call_role(role: RoleId, incarnation: int, topic: str, pickled: bytes, others: Sequence[RoleId] | None) -> None:
    """Call a function, as one of some that meet at a barrier unless `others` is None. The body of a Dask task.

    Raises
    ------
    RoleFailedError
        If the function calls ``sys.exit`` with another code than 0 or None, which is a return.
    StoppedError
        If its task is cancelled.
    WaitTimeoutError
        If the scheduler is silent for minutes.
    """
    leave_quickly()
    worker = get_worker()
    liveness = Liveness.of_this_task(str(role))
    context = RoleContext(role, incarnation, liveness.check, sender(worker, topic))
    event = partial(ClusterEvent, worker, topic, liveness.check)
    barrier = None if others is None else EventBarrier(event, role, others, liveness.check)
    context.emit(RoleStarted(socket.gethostname()))
    try:
        liveness.check()
        _call(pickled, role, Surroundings(liveness.check, barrier))
    finally:
        try:
            if barrier is not None:
                with suppress(StoppedError):  # its owner has cancelled the others, too
                    event(ended(role)).set()
        finally:
            context.emit(RoleEnded())


def _call(pickled: bytes, role: RoleId, surroundings: Surroundings) -> None:
    try:
        unpickled(pickled)(surroundings)
    except SystemExit as left:  # it would end the Dask worker, which then counts as lost
        if left.code not in (None, 0):
            raise RoleFailedError(str(role), f"it called sys.exit({left.code!r}){raised_at(left)}") from None
