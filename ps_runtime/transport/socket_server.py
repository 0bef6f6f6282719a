"""Serves a ps on TCP and on a Unix socket: one thread, one poll loop, one listener per kind.

Over a Unix socket a peer may ask to share memory, once the handler has authenticated it.
"""

from __future__ import annotations

import itertools
import math
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

from psflow.ps_runtime.errors import BrokenPeerError, ClosedError, ProtocolError, UsageError
from psflow.ps_runtime.protocol.message import HEADER, Handler, Kind, Message, Reply, refusal
from psflow.ps_runtime.scratch import boot_id
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.listeners import (
    Address,
    is_same_user,
    listen_on_tcp,
    listen_on_unix,
    new_unix_name,
    tune,
)
from psflow.ps_runtime.transport.reading import LARGE_BYTES, Marks
from psflow.ps_runtime.transport.server_connection import (
    ArenaReaders,
    ServerConnection,
    Spares,
    UnauthenticatedConnections,
    say_at_once,
)
from psflow.ps_runtime.transport.sharing import new_mailbox, what_is_shared
from psflow.ps_runtime.transport.tls import TlsSocket, server_context
from psflow.ps_runtime.transport.waiting import Spin

_READ = selectors.EVENT_READ
_WRITE = selectors.EVENT_WRITE


class SocketServer:
    """Serves one handler to its peers.

    Notes
    -----
    `post` and `statistics` may be called from any thread; all else belongs to the thread that calls `run_once`.
    """

    def __init__(
        self,
        handler: Handler,
        tcp_host: str | None = "127.0.0.1",
        unix: bool = True,
        *,
        certificate: str = "",
        arena: Arena | None = None,
        takes_deposits: bool = False,
        max_connections: int = 256,
        max_unauthenticated: int = 32,
        hello_timeout_secs: float = 5.0,
        awake_secs: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handler = handler
        self._tls = None if tcp_host is None else server_context(certificate)
        """Of all TCP connections."""
        self._arena = arena
        self._lent = None if arena is None or arena.bytes.size < LARGE_BYTES else arena.bytes
        """Memory that replies are sent from without a copy: its changes wait for no peer, but announce themselves."""
        self._marks = Marks(0 if arena is None else arena.bytes.size)
        self._max_connections = max_connections
        self._hello_timeout_secs = hello_timeout_secs
        self._clock = clock
        self._numbers = itertools.count(1)
        self._connections: dict[int, ServerConnection] = {}
        self._takes_deposits = takes_deposits
        self._depositors: dict[int, ServerConnection] = {}
        """The connections with shared memory, if requests may be deposited there."""
        self._spares = Spares()
        self._max_unauthenticated = max_unauthenticated
        self._unauthenticated = UnauthenticatedConnections(max_unauthenticated, hello_timeout_secs)
        self._lost: deque[ServerConnection] = deque()
        self._posted: deque[Callable[[], Iterable[Reply]]] = deque()
        self._is_closed = False
        self._transports_before: set[str] = set()
        self._num_accepted = self._num_messages = self._num_refused = self._bytes_in = self._bytes_out = 0
        self._selector = selectors.DefaultSelector()
        self._spin = Spin(partial(self._selector.select, 0), awake_secs)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, _READ, self._run_posted)
        self._listeners: list[socket.socket] = []
        try:
            self.address = self._listen(tcp_host, unix)
        except BaseException:
            self.close()
            raise
        if arena is not None and self._lent is not None:
            arena.readers = ArenaReaders(self._marks, self._connections)

    def _listen(self, tcp_host: str | None, unix: bool) -> Address:
        port: int | None = None
        name = new_unix_name() if unix else None
        if tcp_host is not None:
            self._listeners.append(listen_on_tcp(tcp_host))
            port = self._listeners[-1].getsockname()[1]
        if name is not None:
            self._listeners.append(listen_on_unix(name))
        if not self._listeners:
            raise UsageError(("a ps needs TCP here, because this system has no abstract Unix sockets",))
        for listener in self._listeners:
            self._selector.register(listener, _READ, partial(self._accept, listener))
        return Address(tcp_host or "", port, name, boot_id())

    def run_once(self, timeout_secs: float) -> None:
        """Handle ready events; wait for one at most `timeout_secs`, but never for a particular peer.

        Raises
        ------
        ClosedError
            After `close`.
        Exception
            Any error of the handler or of a posted event; after it only `close` is allowed.
        """
        if self._is_closed:
            raise ClosedError("the server of a ps")
        if self._unauthenticated:
            timeout_secs = max(0.0, min(timeout_secs, self._unauthenticated.next_deadline - self._clock()))
        ready = self._spin.begin(timeout_secs)
        if not ready:
            ready = self._selector.select(timeout_secs)
            self._spin.slept(was_enough=bool(ready))
        now = self._clock() if self._unauthenticated else -math.inf
        for key, events in ready:
            key.data(events)
        if self._unauthenticated:
            self._drop_unauthenticated(now)  # unless they were ready: the events before may have taken minutes

    def post(self, event: Callable[[], Iterable[Reply]]) -> None:
        """Have `run_once` run an event of the ps itself, and send the replies that it returns. Thread-safe.

        Raises ClosedError if the server is closed.
        """
        if self._is_closed:
            raise ClosedError("the server of a ps")
        self._posted.append(event)
        try:
            self._wake_writer.send(b"\0")
        except BlockingIOError:
            pass  # it is full of earlier wake-ups
        except OSError:
            raise ClosedError("the server of a ps") from None

    @property
    def transports(self) -> set[str]:
        """The transports of the peers that the handler knew."""
        return self._transports_before | {
            connection.transport for connection in self._connections.values() if connection.is_handled
        }

    def statistics(self) -> dict[str, int]:
        """Return counts: `connections` open now; `accepted`, `refused`, `messages`, `bytes_in`, `bytes_out` in all."""
        return {
            "connections": len(self._connections),
            "accepted": self._num_accepted,
            "refused": self._num_refused,
            "messages": self._num_messages,
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
        }

    def close(self) -> None:
        """Close the listeners and all connections without calling the handler. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._arena is not None:
            self._arena.readers = self._lent = None
        self._transports_before = self.transports
        self._selector.close()
        for sock in [*self._listeners, self._wake_reader, self._wake_writer]:
            sock.close()
        for connection in [*self._connections.values(), *self._lost]:
            self._marks.remove(connection.number)
            connection.close()
        self._connections.clear()
        self._depositors.clear()
        self._unauthenticated = UnauthenticatedConnections(0, 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # connecting and leaving peers

    def _accept(self, listener: socket.socket, _: int) -> None:
        try:
            sock, _address = listener.accept()
        except OSError:
            return  # gone again, or no descriptor is free: they stay in the backlog
        is_remote = listener.family != socket.AF_UNIX
        if not is_remote and not is_same_user(sock):
            self._turn_away(sock, "another-user", "this ps belongs to another user")
        elif not is_remote and self._is_full:
            self._turn_away(sock, "full", self._why_full)
        else:
            self._welcome(sock, is_remote=is_remote)

    @property
    def _is_full(self) -> bool:
        return len(self._connections) - self._unauthenticated.num_remote >= self._max_connections

    @property
    def _why_full(self) -> str:
        return f"this ps has {self._max_connections} connections, its maximum"

    def _turn_away(self, sock: socket.socket, code: str, reason: str) -> None:
        self._num_refused += 1
        say_at_once(sock, refusal(code, reason))
        sock.close()

    def _welcome(self, sock: socket.socket, *, is_remote: bool) -> None:
        sock.setblocking(False)
        tune(sock)
        number, serve = next(self._numbers), self._serve
        if is_remote:
            assert self._tls is not None, "it listens on TCP"
            sock, serve = TlsSocket(sock, self._tls), self._serve_tls
        connection = ServerConnection(number, sock, self._handler, self._spares, self._lent)
        self._connections[number] = connection
        self._num_accepted += 1
        self._selector.register(sock, _READ, partial(serve, connection))
        oldest = self._unauthenticated.add(number, self._clock(), is_remote=is_remote)
        if oldest is not None:
            reason = (
                f"{self._max_unauthenticated} connections, the most allowed, have sent no HELLO, and this is the oldest"
            )
            self._refuse(self._connections[oldest], refusal("full", reason))
            self._bury()

    def _drop_unauthenticated(self, now: float) -> None:
        for number in self._unauthenticated.late(now):
            reason = f"no valid HELLO came within {self._hello_timeout_secs:g} s"
            self._refuse(self._connections[number], refusal("late", reason))
            self._bury()

    def _refuse(self, connection: ServerConnection, words: Message) -> None:
        self._num_refused += 1
        if not connection.is_sending:
            say_at_once(connection.socket, words)
        self._lose(connection)

    def _lose(self, connection: ServerConnection) -> None:
        """Disconnect a peer; the handler is called after the present event."""
        if self._connections.pop(connection.number, None) is not None:
            self._unauthenticated.remove(connection.number)
            if connection.is_handled:
                self._transports_before.add(connection.transport)
            self._marks.remove(connection.number)
            self._selector.unregister(connection.socket)
            connection.socket.close()
            self._lost.append(connection)

    def _bury(self) -> None:
        while self._lost:
            connection = self._lost.popleft()
            if self._depositors.pop(connection.number, None) is not None:
                self._take_deposit(connection)
            connection.close()
            if connection.is_handled:
                self._deliver(self._handler.disconnected(connection.number))

    # events

    def _run_posted(self, _: int) -> None:
        self._wake_reader.recv(4096)
        for _ in range(len(self._posted)):
            self._deliver(self._posted.popleft()())
            self._bury()

    def _serve(self, connection: ServerConnection, events: int) -> None:
        if connection.number not in self._connections:
            return  # lost earlier in this round
        message = None
        try:
            if events & _WRITE and not connection.flush():
                self._watch(connection, _READ)
            if events & _READ:
                message = connection.read()
        except ProtocolError as error:
            self._refuse(connection, refusal("protocol", error.reason))
        except BrokenPeerError:
            self._lose(connection)
        if message is not None:
            self._handle(connection, message)
        if self._lost:
            self._bury()

    def _serve_tls(self, connection: ServerConnection, events: int) -> None:
        if self._unauthenticated:
            self._unauthenticated.hear(connection.number, self._clock())
        self._serve(connection, events)
        assert isinstance(connection.socket, TlsSocket), "its peer uses TCP"
        if connection.number in self._connections and connection.socket.has_more:
            self.post(partial(self._serve_more, connection))  # after the others

    def _serve_more(self, connection: ServerConnection) -> Iterable[Reply]:
        self._serve_tls(connection, _READ)
        return ()

    def _handle(self, connection: ServerConnection, message: Message) -> None:
        if self._unauthenticated and self._unauthenticated.is_remote(connection.number) and self._is_full:
            self._refuse(connection, refusal("full", self._why_full))
            return
        for depositor in tuple(self._depositors.values()):
            self._take_deposit(depositor)  # `message` may name what these have deposited
        if connection.number not in self._connections:
            return  # lost for its deposit
        self._count(message)
        connection.is_answered = False
        try:
            if message.kind is Kind.SHARE:
                self._share(connection)
            else:
                connection.is_handled = True
                self._deliver(self._handler.handle(connection.number, message))
        except ProtocolError as error:
            self._refuse(connection, refusal("protocol", error.reason))
        if self._unauthenticated:
            self._unauthenticated.remove(connection.number)

    def _take_deposit(self, connection: ServerConnection) -> None:
        """Handle the request that a peer has deposited since the last look, if any; the peer may be gone."""
        try:
            message = connection.take_deposit()
            if message is not None:
                self._count(message)
                replies = self._handler.handle(connection.number, message)
                self._deliver(reply for reply in replies if reply[0] != connection.number)
        except ProtocolError as error:
            if connection.number in self._connections:
                self._refuse(connection, refusal("protocol", error.reason))

    def _count(self, message: Message) -> None:
        self._num_messages += 1
        self._bytes_in += HEADER.size + len(message.body)

    def _share(self, connection: ServerConnection) -> None:
        """Answer SHARE without the handler: only the way of the bodies changes."""
        kinds = (kind for kind in Kind if not kind.is_reply and kind is not Kind.HELLO)
        request_bytes = max(self._handler.max_body_bytes(connection.number, kind) for kind in kinds)
        if connection.transport != "unix" or not request_bytes:
            raise ProtocolError("peer", "expected SHARE once, after HELLO, over a Unix socket")
        try:
            mailbox = new_mailbox(request_bytes, self._arena, takes_deposits=self._takes_deposits)
        except OSError as error:
            self._deliver([(connection.number, refusal("memory", error.strerror or str(error)))])
            return
        try:
            self._bytes_out += connection.share(mailbox, *what_is_shared(mailbox, self._arena))
        except BrokenPeerError:
            self._lose(connection)
        else:
            self._marks.add(connection.number, mailbox.mark)
            if self._takes_deposits:
                self._depositors[connection.number] = connection

    def _deliver(self, replies: Iterable[Reply]) -> None:
        for number, message in replies:
            connection = self._connections.get(number)
            if connection is None:
                continue  # vanished while its reply was held
            assert not connection.is_answered, f"connection {number} gets a reply without a request"
            try:
                self._bytes_out += connection.send(message)
            except BrokenPeerError:
                self._lose(connection)
            else:
                if connection.is_sending:
                    self._watch(connection, _READ | _WRITE)

    def _watch(self, connection: ServerConnection, events: int) -> None:
        self._selector.modify(connection.socket, events, self._selector.get_key(connection.socket).data)
