"""The interface between transports, which call it, and the server, which implements it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from psflow.ps_runtime.protocol.message import Kind, Message

__all__ = ["Handler", "Reply"]

Reply = tuple[int, Message]
"""Who it is for (the number of a connection), and what it says."""


class Handler(Protocol):
    """The policy behind a ps: events in, replies out. No sockets, no clock, no threads.

    It belongs to one server: numbers of connections are unique there and never used again. An error that is no
    ProtocolError ends the server.
    """

    def handle(self, peer: int, message: Message) -> Iterable[Reply]:
        """Take a whole message of connection `peer`; return the replies that are due now, to any peer.

        Raises ProtocolError: the transport then refuses and disconnects the peer.
        """

    def disconnected(self, peer: int) -> Iterable[Reply]:
        """Take note that connection `peer` is gone; return the replies that are due to others.

        Called once for each connection that `handle` was called for, unless the server itself was closed.
        """

    def max_body_bytes(self, peer: int, kind: Kind) -> int:
        """Return the largest body that a message of this kind may have from this peer now.

        Asked before the body is read, so it must change nothing. May raise ProtocolError, as `handle`. Before a peer
        is let in it is 0 for all kinds but HELLO: no memory is shared with it then.
        """
