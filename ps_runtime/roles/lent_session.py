"""The session of a replica in the hands of a loop of the user's own, in another thread than that of its role."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

from psflow.ps_runtime.errors import StoppedError, TransportError
from psflow.ps_runtime.roles.session import MonitoredSession

__all__ = ["LentSession"]


class LentSession:
    """Lends the session of one life of a role to the thread of a user, who makes its steps and gives it back.

    Parameters
    ----------
    role : str
        What error texts call it.

    Notes
    -----
    One thread has the session at a time: while it is lent, that of the role only waits for it.
    """

    def __init__(self, role: str) -> None:
        self._role = role
        self._lent: Future[MonitoredSession] = Future()
        self._returned: Future[None] = Future()
        self._interruption: StoppedError | None = None

    def lend(self, session: MonitoredSession) -> None:
        """Lend the session, in the thread of the role, and wait until it is given back. Blocks.

        Raises
        ------
        Exception
            What the user's loop has ended with; a StoppedError if it was interrupted, or had an earlier session.
        """
        if self._lent.done():
            why = "the loop of this process was in its last life, and does not go back to a checkpoint"
            raise StoppedError(self._role, f"{why}; start all processes again to resume")
        self._lent.set_result(session)
        self._returned.result()

    def check(self) -> None:
        """Raise StoppedError once the user's loop was interrupted, as by Ctrl-C: nobody waits for the role then."""
        if self._interruption is not None:
            raise self._interruption

    @contextmanager
    def borrowed(self, run: Callable[[], Any]) -> Iterator[MonitoredSession]:
        """Give the session of the role that `run` is, for the time of a block; then wait until `run` has ended. Blocks.

        Parameters
        ----------
        run : callable
            Is called in a thread of its own, calls `lend` in any thread, and `check` several times a second.

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
                    yield self._session_of(role)
                    self._returned.set_result(None)
                    role.result()
                except BaseException as error:
                    self._give_back(error)
                    if isinstance(error, StoppedError | TransportError):
                        failure = role.exception()  # once it has ended
                        if failure not in (None, error):
                            raise failure from error
                    raise
        finally:
            # a Dask worker may keep this object for long, and so the memory that the session has mapped
            self._lent, self._returned = Future(), Future()

    def _session_of(self, role: Future[Any]) -> MonitoredSession:
        wait({self._lent, role}, return_when=FIRST_COMPLETED)
        if self._lent.done():
            return self._lent.result()
        role.result()
        raise StoppedError(self._role, "the job was over before it had begun")

    def _give_back(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self._interruption = StoppedError(self._role, f"its loop was interrupted: {error!r}")
        if not self._returned.done():
            self._returned.set_exception(self._interruption or error)
