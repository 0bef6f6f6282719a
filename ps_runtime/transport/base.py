"""Defines a transport: connections to the `Handler` of a ps, and the laws that bind both.

Laws, which the test suite runs for every transport:

1. A connection has at most one request under way; its reply comes in order, or not at all if the peer vanished.
2. A handler sees one event at a time: whole messages only, bounds checked before anything is allocated.
   The body of a request is borrowed for the time of `handle`: what is kept of it must be copied. It may lie in memory
   that the peer can still write: what decides where to read or write is copied first, then checked, then used.
3. A reply may be held: `handle` returns nothing for it now, and a later event returns it.
4. The body of a reply is copied or sent before the next event is handled. One that was made in the `room` of a request
   is copied no more; it can only be the reply of that connection to that request, returned by that `handle`.
5. A peer that breaks the protocol is refused, disconnected, and changes nothing.
6. A deposited request has no reply. It is handled before any later message, also if its sender has died meanwhile.

An event is a message, the end of a connection, or what the ps itself posts (files are written, a timer rang).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.protocol.message import Message


class ReadableArena(Protocol):
    """The arena of a ps, as a role on the same host sees it."""

    bytes: NDArray[np.uint8]
    """The present bytes, which may be in the middle of a change; read-only."""

    @property
    def version(self) -> int:
        """Number of the last whole version; negative before there is one, and after the connection has ended."""

    def read(self, into: NDArray[np.uint8]) -> int | None:
        """Copy one version of the bytes into `into`, of the same size, and return its number.

        Return None if there is no version yet, or no copy was whole within the allowed time and attempts: `into` is
        undefined then, and a request to the ps gives the bytes.
        """


class Connection(ABC):
    """A connection from a role to one ps. Not thread-safe; every wait has a timeout."""

    peer: str
    """Name of the peer in error messages: ``ps-0 at 127.0.0.1:1234``."""
    transport: str
    """``in-process``, ``shm``, ``unix`` or ``tcp``."""
    is_direct = False
    """Whether a request calls the handler, so that a further one takes less time than a copy of its reply."""
    arena: ReadableArena | None = None
    """The arena of the ps, read without a request; None where it is not shared."""

    @abstractmethod
    def shake_hands(self, timeout_secs: float) -> None:
        """Have both ends prove that they belong to the job, where the transport needs that; comes before any request.

        Raises
        ------
        WaitTimeoutError
            After `timeout_secs`: call it again, because no request is possible before.
        ClosedError, BrokenPeerError
            If this end was closed; if the peer is gone, or does not belong to the job.
        """

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a request. Blocks until it is handed over; the body may be changed after that, unless it is an outbox.

        Raises
        ------
        RefusedError
            If the peer refused the request before it had all of it, and disconnected.
        ProtocolError
            If the reply to the last request has not been received yet.
        ClosedError, BrokenPeerError
            If this end was closed; if the peer is gone.
        """

    @abstractmethod
    def receive(self, timeout_secs: float, into: memoryview | None = None) -> Message:
        """Wait for the reply to the request under way.

        Raises
        ------
        WaitTimeoutError
            After `timeout_secs`; the reply may still be received by a later call.
        RefusedError
            If the peer refused the request; the connection stays usable unless the peer closed it.
        ProtocolError
            If the peer broke the protocol, or no request is under way.
        ClosedError, BrokenPeerError
            If this end was closed; if the peer is gone.
        """

    def request(self, message: Message, timeout_secs: float, into: memoryview | None = None) -> Message:
        """Send a request and wait for its reply."""
        self.send(message)
        return self.receive(timeout_secs, into)

    @abstractmethod
    def share(self, timeout_secs: float) -> None:
        """Ask the ps, which has authenticated this role, for shared memory, if the requested transport may use it.

        Raises
        ------
        UsageError
            If shared memory is required but not available, or if the received memory cannot be mapped.
        WaitTimeoutError
            After `timeout_secs`: call it again, because no other request is possible before.
        ClosedError, BrokenPeerError, ProtocolError
            If this end was closed; if the peer is gone; if it breaks the protocol.
        """

    def deposit(self, message: Message) -> bool:
        """Leave a request without a reply in shared memory, where the ps finds it before its next message; wake no one.

        One at a time: the next request is an ordinary one, and its reply gives the memory of the body back. Return
        False, and do nothing, without shared memory for it, or if the ps takes no deposits.

        Raises
        ------
        ProtocolError
            If the reply to the last request has not been received yet, or the last request was deposited, too.
        ClosedError, BrokenPeerError
            If this end was closed; if the peer is gone, or has ended the connection.
        """
        return False

    @abstractmethod
    def outbox(self, nbytes: int) -> memoryview | None:
        """Return a place for the body of the next request, so that sending it copies nothing; None without enough room.

        The view belongs to this role until a request is sent; then to the ps until the reply was received, also if the
        request had another body. So ask for a view for each body; there are two views of a size, returned in turn while
        a request is under way, the same ones each time. None also while one is deposited and a request is under way.
        """

    @abstractmethod
    def keep(self) -> bool:
        """Keep the body of the last received reply until another one is kept; return False if that is impossible.

        While one is kept, the bodies of later replies are borrowed for a shorter time: until the next `send`.
        """

    @abstractmethod
    def statistics(self) -> dict[str, int | str]:
        """Return `peer`, `transport`, `why` it was chosen, and `requests`, `bytes_out`, `bytes_in` so far."""

    @abstractmethod
    def close(self) -> None:
        """End the connection. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
