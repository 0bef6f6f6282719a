"""The client of an evaluator: it hears of checkpoints and of the end of training as they come."""

from __future__ import annotations

from ps_runtime.client.link import Dial, Identity
from ps_runtime.errors import TransportError, WaitTimeoutError
from ps_runtime.transport.base import Connection
from ps_runtime.transport.message import Kind, Message

__all__ = ["WatchingClient"]


class WatchingClient:
    """Waits for news of ps-0. What is true stands on disk; this only says when to look.

    Parameters
    ----------
    dial : callable
        How to reach ps-0.
    identity : Identity
        With the purpose WATCH.
    timeout_secs : float
        For reaching ps-0.
    """

    def __init__(self, dial: Dial, identity: Identity, timeout_secs: float = 10.0) -> None:
        self._identity = identity
        self._is_waiting = False
        self._connection: Connection | None = None
        self.transport = "none"
        try:
            self._connection = dial(timeout_secs)
            self.transport = self._connection.transport
            self._connection.request(identity.hello(), timeout_secs)
        except TransportError:  # a short job is over before its evaluator starts
            self.close()

    def wait(self, seen_step: int, timeout_secs: float) -> bool:
        """Wait until there is a checkpoint later than `seen_step`, the job is finished, or the time is over.

        Returns
        -------
        bool
            False, at once, when ps-0 is gone.
        """
        if self._connection is None:
            return False
        try:
            if not self._is_waiting:
                self._connection.send(self._identity.sign(Message(Kind.WATCH, step=seen_step)))
                self._is_waiting = True
            self._connection.receive(timeout_secs)
            self._is_waiting = False
        except WaitTimeoutError:
            pass
        except TransportError:
            self.close()
        return True

    def close(self) -> None:
        """End the connection. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
