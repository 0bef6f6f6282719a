"""Faults of connections and messages, made in the process of a role: each function runs on its Dask worker."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading

from psflow.ps_runtime.client.shard_client import ShardClient
from psflow.ps_runtime.errors import BrokenPeerError
from psflow.ps_runtime.protocol.message import Kind, Message, body_view, encode_header
from psflow.ps_runtime.transport.server_connection import ServerConnection
from psflow.ps_runtime.transport.socket_client import SocketConnection
from psflow.ps_runtime.transport.tls import TlsSocket
from tests.chaos.gates import Gates

NEVER_REPEATED = (Kind.HELLO, Kind.SHARE, Kind.LEAVE)
"""What a client says when it opens or ends a connection."""


def disconnect() -> int:
    """Break all connections of this process with other roles, at both ends; return how many there were."""
    found = gc.get_objects()
    ends = [each._socket for each in found if type(each) is SocketConnection]
    ends += [each.socket for each in found if type(each) is ServerConnection]
    is_cut = [_cut(end) for end in ends]
    return sum(is_cut)


def _cut(end: socket.socket) -> bool:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:  # it was closed before
        return False
    return True


def repeat_next_message(gates: Gates) -> None:
    """Have the role repeat the next message that a ps answers, as if the answer had not come."""
    receive, once = ShardClient.receive, threading.Lock()

    def receive_twice(client: ShardClient, what: str, timeout_secs: float, into: memoryview | None = None) -> Message:
        message = receive(client, what, timeout_secs, into)
        if not once.acquire(blocking=False):
            return message
        assert client._sent is not None
        client.send(client._sent)
        gates.note_message()
        return receive(client, what, timeout_secs, into)

    ShardClient.receive = receive_twice  # type: ignore[method-assign]


def delay_next_message(gates: Gates) -> None:
    """Have the next message to a ps get stuck, and come only after the one that follows it by a new connection."""
    send, once = SocketConnection.send, threading.Lock()
    late: list[_Late] = []

    def send_late(connection: SocketConnection, message: Message) -> None:
        if message.kind in NEVER_REPEATED:
            send(connection, message)
        elif once.acquire(blocking=False):
            late.append(_Late(connection, message))
            raise BrokenPeerError(connection.peer, f"{message.kind.name} got stuck on its way")
        else:
            send(connection, message)
            if late and late[0].is_due(connection):
                with contextlib.suppress(OSError):  # the ps has closed it
                    late.pop().come()
                    gates.note_message()

    SocketConnection.send = send_late  # type: ignore[method-assign]


class _Late:
    """A message that is stuck, of a client in this thread."""

    def __init__(self, connection: SocketConnection, message: Message) -> None:
        end, body = connection._socket, body_view(message)
        data = encode_header(message, len(body)) + bytes(body)
        self._data = _encrypted(end, data) if isinstance(end, TlsSocket) else data
        # a second end, so that the ps does not see that the client closes its own
        self._end = socket.fromfd(end.fileno(), end.family, end.type)
        self._peer = connection.peer  # not that of the socket, which has none once the ps has ended
        self._thread = threading.get_ident()
        self._num_sent = 0

    def is_due(self, connection: SocketConnection) -> bool:
        """Record a message that was sent; return whether it is the one after the repeat of this one."""
        if threading.get_ident() == self._thread and connection.peer == self._peer:
            self._num_sent += 1
        return self._num_sent == 2

    def come(self) -> None:
        """Come, and let the connection end; OSError if the ps has closed it."""
        with self._end:
            self._end.sendall(self._data)


def _encrypted(end: TlsSocket, data: bytes) -> bytes:
    """Return the records that `end` would send next."""
    view = memoryview(data)
    while view:
        view = view[end._tls.write(view) :]
    return end._outgoing.read()
