"""The client of an evaluator: it hears of checkpoints and of the end of training as they come."""

from __future__ import annotations

from psflow.ps_runtime.client.shard_client import ShardClient
from psflow.ps_runtime.errors import BrokenPeerError, TransportError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import Kind, Message

__all__ = ["WatchingClient"]


class WatchingClient:
    """Waits for news of ps-0. What is true stands on disk; this only says when to look."""

    def __init__(self, shard: ShardClient, timeout_secs: float) -> None:
        self._shard = shard
        self._is_waiting = False
        self._is_gone = False
        self.transport = "none"
        try:
            shard.open(timeout_secs)
        except (BrokenPeerError, WaitTimeoutError):  # nobody is there, or its host is gone
            self._is_gone = True
        else:
            self.transport = shard.connection.transport

    def wait(self, seen_step: int, timeout_secs: float) -> bool:
        """Wait until there is a checkpoint later than `seen_step`, the job is finished, or the time is over."""
        if self._is_gone:
            return False
        try:
            if not self._is_waiting:
                self._shard.send(Message(Kind.WATCH, step=seen_step))
                self._is_waiting = True
            self._shard.receive("send news", timeout_secs)
            self._is_waiting = False
        except WaitTimeoutError:
            pass
        except TransportError:
            self._is_gone = True
        return True

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._shard.close()
