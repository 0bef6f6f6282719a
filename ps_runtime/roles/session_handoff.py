"""Hands the sessions of a replica to the user's training loop, in another thread than that of its role."""

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
"""Errors of a session whose incarnation is over; its role may start another one."""

NextSession = Callable[[Exception | None], MonitoredSession]
"""Returns the first session, for None; the next one, for the error of the last one. Blocks."""

SLICE_SECS = 1.0
"""A signal that arrives right before a thread begins to wait does not wake it."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Handover:
    """The session of one incarnation."""

    session: MonitoredSession
    returned: Future[None] = field(default_factory=Future)


class SessionHandoff:
    """Hands the session of each incarnation of a role to the user's thread, which makes its steps and returns it.

    Notes
    -----
    One thread has the session at a time: until it is returned, that of the role only waits for it.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self._lock = Lock()
        """Of the next two: a session is returned."""
        self._handover: _Handover | None = None
        self._is_over = False
        self._next: Future[_Handover] = Future()
        """The handover that the user's thread has not taken yet."""
        self._interruption: InterruptedLoopError | None = None

    def hand_over(self, session: MonitoredSession) -> None:
        """Hand over the session of an incarnation, in the thread of the role, and wait until it is returned. Blocks.

        Raises
        ------
        Exception
            The error of the user's loop; an InterruptedLoopError if that was no error of its code, as with
            Ctrl-C; a StoppedError if it had ended before this incarnation.
        """
        with self._lock:
            if self._is_over:
                raise self._interruption or self._ended()
            handover = self._handover = _Handover(session)
            self._next.set_result(handover)
        handover.returned.result()

    def check(self) -> None:
        """Raise InterruptedLoopError once the user's loop was interrupted: then nothing waits for the role."""
        if self._interruption is not None:
            raise self._interruption

    @contextmanager
    def sessions(self, run: Callable[[], Any]) -> Iterator[NextSession]:
        """Yield the sessions of the role that `run` runs, within a block; then wait until `run` has ended. Blocks.

        Raises
        ------
        StoppedError
            If the role has ended before it had a session.
        Exception
            The error of `run`, unless the block raises an unrelated one.
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
            # a Dask worker may keep this object for long, and with it the memory that the session has mapped
            self._next, self._handover = Future(), None

    def _following(self, role: Future[Any], error: Exception | None) -> MonitoredSession:
        """Return the session that failed with `error`, if any, and wait for the next incarnation's. Blocks."""
        if error is not None:
            assert self._handover is not None
            logger.warning("%s: its session ended, and its loop waits for the next one: %s", self._role, str(error))
            self._handover.returned.set_exception(error)
        _await_any({self._next, role})
        if self._next.done():
            handover, self._next = self._next.result(), Future()
            return handover.session
        role.result()
        when = "it had started" if error is None else "its loop had rolled back to the last checkpoint"
        raise StoppedError(self._role, f"the job was over before {when}")

    def _give_back(self, error: BaseException | None) -> None:
        """End the loop; `error` is the one it has raised."""
        if error is not None and not isinstance(error, Exception):
            self._interruption = InterruptedLoopError(self._role, how_it_ended(error))
        with self._lock:
            self._is_over = True
            returned = None if self._handover is None else self._handover.returned
        if returned is None or returned.done():
            return
        if error is None:
            returned.set_result(None)
        else:
            returned.set_exception(self._interruption or error)

    def _ended(self) -> StoppedError:
        why = "its loop had ended when training rolled back to the last checkpoint"
        return StoppedError(self._role, f"{why}; start all processes again to resume")


def _await_any(futures: set[Future[Any]]) -> None:
    """Wait until one of `futures` is done, and notice signals meanwhile."""
    while not wait(futures, SLICE_SECS, FIRST_COMPLETED).done:
        pass
