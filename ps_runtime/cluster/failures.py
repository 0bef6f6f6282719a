"""Finds the reason why a job has failed: of the errors of its roles the one that caused the others, with its place."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from types import TracebackType

from distributed import Client

from psflow.ps_runtime.cluster.incarnations import UserFault
from psflow.ps_runtime.cluster.scheduler_rpc import scheduler_gone
from psflow.ps_runtime.errors import PsflowError, RoleFailedError, StoppedError, TransportError, UsageError
from psflow.ps_runtime.specs.roles import RoleId

ROLE_FILE, ROLE_FUNCTION = "role_task.py", "run_role"
"""First frame of a role in a traceback; earlier frames are of Dask and of the owner."""


SCHEDULER_LOST = "scheduler-connection-lost"
"""Dask's reason when a client cancels its tasks because the connection to the scheduler breaks."""


def scheduler_loss(client: Client, error: CancelledError) -> RoleFailedError | None:
    """Return the reason if a task counts as cancelled because the scheduler is gone; None if it was cancelled."""
    if getattr(error, "reason", None) != SCHEDULER_LOST:
        return None
    return scheduler_gone(client)


def root_cause(errors: Sequence[tuple[RoleId, BaseException]]) -> RoleFailedError:
    """Return the error that caused the others; a broken connection or a stop counts as a consequence where possible."""
    role, error = min(errors, key=lambda item: isinstance(item[1], TransportError | StoppedError))
    if isinstance(error, RoleFailedError):
        return error
    failure = RoleFailedError(str(role), _sentence(error))
    failure.__cause__ = error
    return failure


def trace_in_role(failure: RoleFailedError) -> str:
    """Return the traceback of the failure of a role, from where the role begins; "" if it adds nothing.

    It is empty if the role was killed, or if no user code is involved: the message then says everything.
    """
    error = failure.__cause__
    if error is None or not _is_of_user(error):
        return ""
    begin: TracebackType | None = error.__traceback__
    while begin is not None and not _is_of_role(begin):
        begin = begin.tb_next
    frames = error.__traceback__ if begin is None else begin.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


def user_fault(error: BaseException) -> UserFault | None:
    """Return what distinguishes an exception of user code; None if an error is not of user code."""
    if not _is_of_user(error):
        return None
    raised = next(behind for behind in _chain(error) if not isinstance(behind, PsflowError))
    kind = f"{type(raised).__qualname__}{raised_at(raised)}"
    return UserFault(kind, _sentence(error), is_of_system=isinstance(raised, OSError))


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, PsflowError) else f"{error!r}{raised_at(error)}"


def with_causes(error: BaseException) -> str:
    """Return an error and its causes in one line; a nanny's error alone says only that the start failed.

    Examples
    --------
    >>> error = RuntimeError("Nanny failed to start.")
    >>> error.__cause__ = ValueError("name taken, 3")
    >>> with_causes(error)
    'RuntimeError: Nanny failed to start., caused by ValueError: name taken, 3'
    """
    return ", caused by ".join(f"{type(behind).__name__}: {behind}" for behind in _chain(error))


def _is_of_user(error: BaseException) -> bool:
    """Return whether the causes include more than psflow errors and the system errors that psflow ran into."""
    if not isinstance(error, PsflowError):
        return True
    of_system = () if isinstance(error, UsageError) else (OSError,)
    return not all(isinstance(behind, (PsflowError, *of_system)) for behind in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, in the order of a traceback."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_of_role(frame: TracebackType) -> bool:
    code = frame.tb_frame.f_code
    return os.path.basename(code.co_filename) == ROLE_FILE and code.co_name == ROLE_FUNCTION


def raised_at(error: BaseException) -> str:
    """Return `` at file:line`` of where an error was raised; "" if unknown."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    path = os.path.relpath(frames[-1].filename)
    return f" at {frames[-1].filename if path.startswith('..') else path}:{frames[-1].lineno}"
