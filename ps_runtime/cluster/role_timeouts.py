"""Enforces the limits for what roles do next: start, listen, leave in a rollback, and end after training."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId

START_TIMEOUT_SECS = 60.0
"""For a submitted role to report; its process runs already."""
LISTEN_TIMEOUT_SECS = 300.0
"""For a new incarnation of a ps to listen: it may import what a model_fn needs on a busy machine."""
LEAVE_TIMEOUT_SECS = 300.0
"""For a ps or the chief to end in a rollback; it may have a step of the user's code to finish."""
END_TIMEOUT_SECS = 60.0
"""For a worker to run its ``end`` hooks once training is over."""
NO_ROLLBACK_YET = "training rolls back to the last checkpoint only after that"
RESUME = "check its log for what it waits for, then run the same command again"

logger = logging.getLogger(__name__)


def enforce_timeouts(supervisor: Supervisor) -> None:
    """Record that late incarnations are lost, and late workers abandoned. Does not block.

    Raises WaitTimeoutError if a ps or the chief does not end in a rollback, or a new incarnation of a ps does not start
    listening.
    """
    with supervisor.lock:
        supervisor.lose_late(START_TIMEOUT_SECS)
        if late := supervisor.late_to_leave(LEAVE_TIMEOUT_SECS):
            raise WaitTimeoutError(_names(late), "end", LEAVE_TIMEOUT_SECS, f"{NO_ROLLBACK_YET}; {RESUME}")
        if silent := supervisor.late_to_listen(LISTEN_TIMEOUT_SECS):
            raise WaitTimeoutError(_names(silent), "start listening", LISTEN_TIMEOUT_SECS, RESUME)
        abandoned = supervisor.abandoned_late(END_TIMEOUT_SECS)
    for role, slot in abandoned.items():
        what = f"{role} on the Dask worker {slot} did not end within {END_TIMEOUT_SECS:g} s after the end of training"
        logger.warning("%s; the job ends without it, and loses nothing", what)


def late_start(
    late: Iterable[RoleId], slots: Mapping[RoleId, str], action: str, timeout_secs: float
) -> WaitTimeoutError:
    """Return the error if first incarnations on their `slots` have not done `action` in time."""
    where = ", ".join(sorted({slots[role] for role in late}))
    detail = f"check its Dask worker, {where}: it may hang, or be busy with something else"
    return WaitTimeoutError(_names(sorted(late, key=list(slots).index)), action, timeout_secs, detail)


def _names(roles: Iterable[RoleId]) -> str:
    return ", ".join(map(str, roles))
