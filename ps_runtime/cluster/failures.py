"""Why a job has failed: of the errors of its roles the one that the others follow from, told with its place."""

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
"""Where the frames of a role begin; those before are of Dask and of the owner."""


SCHEDULER_LOST = "scheduler-connection-lost"
"""Why a Dask client cancels all tasks that it waits for when the connection to its scheduler breaks."""


def scheduler_loss(client: Client, error: CancelledError) -> RoleFailedError | None:
    """Return what to say if a task counts as cancelled because the scheduler is gone; None if somebody cancelled it."""
    if getattr(error, "reason", None) != SCHEDULER_LOST:
        return None
    return scheduler_gone(client)


def root_cause(errors: Sequence[tuple[RoleId, BaseException]]) -> RoleFailedError:
    """Return the error that caused the others: a vanished peer, or a stop, counts as a consequence where possible."""
    role, error = min(errors, key=lambda item: isinstance(item[1], TransportError | StoppedError))
    if isinstance(error, RoleFailedError):
        return error
    failure = RoleFailedError(str(role), _sentence(error))
    failure.__cause__ = error
    return failure


def trace_in_role(failure: RoleFailedError) -> str:
    """Return the traceback of what a role failed with, from where the role begins; "" if there is nothing to look up.

    That is so if it was killed, and if the code of the user has no part in it: the sentence has it all.
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
    """Return what tells an exception of the user's code from others; None if an error is not of that code."""
    if not _is_of_user(error):
        return None
    raised = next(behind for behind in _chain(error) if not isinstance(behind, PsflowError))
    kind = f"{type(raised).__qualname__}{raised_at(raised)}"
    return UserFault(kind, _sentence(error), is_of_system=isinstance(raised, OSError))


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, PsflowError) else f"{error!r}{raised_at(error)}"


def with_causes(error: BaseException) -> str:
    """Return an error and those that it came from, in one line: that of a nanny says only that it failed to start.

    Examples
    --------
    >>> error = RuntimeError("Nanny failed to start.")
    >>> error.__cause__ = ValueError("name taken, 3")
    >>> with_causes(error)
    'RuntimeError: Nanny failed to start., caused by ValueError: name taken, 3'
    """
    return ", caused by ".join(f"{type(behind).__name__}: {behind}" for behind in _chain(error))


def _is_of_user(error: BaseException) -> bool:
    """Return whether more lies behind it than errors of psflow, and of the system where psflow ran into them."""
    if not isinstance(error, PsflowError):
        return True
    of_system = () if isinstance(error, UsageError) else (OSError,)
    return not all(isinstance(behind, (PsflowError, *of_system)) for behind in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Give an error and those that it came from, as a traceback shows them."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _is_of_role(frame: TracebackType) -> bool:
    code = frame.tb_frame.f_code
    return os.path.basename(code.co_filename) == ROLE_FILE and code.co_name == ROLE_FUNCTION


def raised_at(error: BaseException) -> str:
    """Return `` at file:line`` of where an error was raised; "" if nobody knows."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    path = os.path.relpath(frames[-1].filename)
    return f" at {frames[-1].filename if path.startswith('..') else path}:{frames[-1].lineno}"
