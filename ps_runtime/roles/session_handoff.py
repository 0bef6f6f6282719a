"""The sessions of a replica in the hands of a loop of the user's own, in another thread than that of its role."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from psflow.ps_runtime.errors import InterruptedLoopError, StoppedError, TransportError
from psflow.ps_runtime.roles.session import MonitoredSession
from psflow.ps_runtime.signals import how_it_ended

BREAKS = (StoppedError, TransportError)
"""What a session raises whose life is over; its role may begin another one."""

NextSession = Callable[[Exception | None], MonitoredSession]
"""Returns the first session, for None; the next one, for what the last one broke of. Blocks."""

SLICE_SECS = 1.0
"""A signal that comes right before a thread begins to wait does not wake it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Loan:
    """The session of one life."""

    session: MonitoredSession
    returned: Future[None] = field(default_factory=Future)


class SessionHandoff:
    """Lends the session of each life of a role to the thread of a user, who makes its steps and gives it back.

    Notes
    -----
    One thread has the session at a time: while it is lent, that of the role only waits for it.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self._lock = Lock()
        """Of the next two: a session that is lent is given back."""
        self._loan: _Loan | None = None
        self._is_over = False
        self._next: Future[_Loan] = Future()
        """The loan that the user's thread has not taken yet."""
        self._interruption: InterruptedLoopError | None = None

    def lend(self, session: MonitoredSession) -> None:
        """Lend the session of a life, in the thread of the role, and wait until it is given back. Blocks.

        Raises
        ------
        Exception
            What the user's loop has ended with; an InterruptedLoopError if that was no error of its code, as with
            Ctrl-C; a StoppedError if it had ended before this life.
        """
        with self._lock:
            if self._is_over:
                raise self._interruption or self._ended()
            loan = self._loan = _Loan(session)
            self._next.set_result(loan)
        loan.returned.result()

    def check(self) -> None:
        """Raise InterruptedLoopError once the user's loop was interrupted: nobody waits for the role then."""
        if self._interruption is not None:
            raise self._interruption

    @contextmanager
    def borrowed(self, run: Callable[[], Any]) -> Iterator[NextSession]:
        """Give the sessions of the role that `run` is, for a block; then wait until `run` has ended. Blocks.

        Raises
        ------
        StoppedError
            If the role has ended before it had a session.
        Exception
            What `run` raises, unless the block raises something that does not follow from that.
        """
        try:
            with ThreadPoolExecutor(1, "psflow-role") as threads:
                try:
                    role = threads.submit(run)
                    yield partial(self._following, role)
                    self._give_back(None)
                    _await_any({role})
                    role.result()
                except BaseException as error:
                    self._give_back(error)
                    if isinstance(error, BREAKS):
                        _await_any({role})
                        failure = role.exception()
                        if failure not in (None, error):
                            raise failure from error
                    raise
        finally:
            # a Dask worker may keep this object for long, and so the memory that the session has mapped
            self._next, self._loan = Future(), None

    def _following(self, role: Future[Any], error: Exception | None) -> MonitoredSession:
        """Give back the session that broke of `error`, if there was one, and wait for that of the next life. Blocks."""
        if error is not None:
            assert self._loan is not None
            logger.warning("%s: its session ended, and its loop waits for the next one: %s", self._role, str(error))
            self._loan.returned.set_exception(error)
        _await_any({self._next, role})
        if self._next.done():
            loan, self._next = self._next.result(), Future()
            return loan.session
        role.result()
        when = "it had begun" if error is None else "its loop had gone back to the last checkpoint"
        raise StoppedError(self._role, f"the job was over before {when}")

    def _give_back(self, error: BaseException | None) -> None:
        """End the loop; `error` is what it has raised."""
        if error is not None and not isinstance(error, Exception):
            self._interruption = InterruptedLoopError(self._role, how_it_ended(error))
        with self._lock:
            self._is_over = True
            returned = None if self._loan is None else self._loan.returned
        if returned is None or returned.done():
            return
        if error is None:
            returned.set_result(None)
        else:
            returned.set_exception(self._interruption or error)

    def _ended(self) -> StoppedError:
        why = "its loop had ended when training went back to the last checkpoint"
        return StoppedError(self._role, f"{why}; start all processes again to resume")


def _await_any(futures: set[Future[Any]]) -> None:
    """Wait until one of `futures` is done, and hear of signals meanwhile."""
    while not wait(futures, SLICE_SECS, FIRST_COMPLETED).done:
        pass
