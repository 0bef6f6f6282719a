"""Connects roles to a ps in the same process: a request calls its handler, in the thread of the role."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import BrokenPeerError, ClosedError, ProtocolError, PsflowError, WaitTimeoutError
from psflow.ps_runtime.protocol.message import (
    HEADER,
    Handler,
    Kind,
    Message,
    Reply,
    body_view,
    refusal,
    refused_error,
    whole_body,
)
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.base import Connection, ReadableArena


class _ArenaHere:
    """The arena of a ps in this process: a `ReadableArena` that changes under `lock` alone."""

    def __init__(self, arena: Arena, lock: threading.RLock) -> None:
        self.bytes = arena.bytes.view()
        self.bytes.flags.writeable = False
        self._arena = arena
        self._lock = lock

    @property
    def version(self) -> int:
        return self._arena.version

    def read(self, into: NDArray[np.uint8]) -> int | None:
        with self._lock:
            np.copyto(into, self.bytes)
            version = self._arena.version
        return None if version < 0 else version


class InProcessServer:
    """Serves one handler to connections of this process.

    Notes
    -----
    `arena` is that of the ps, which roles then read without a request.

    Thread-safe: one lock makes the events of the handler one at a time. An error of the handler other than
    ProtocolError is raised in the thread of its event, and ends the server for all.
    """

    def __init__(self, handler: Handler, arena: Arena | None = None) -> None:
        self._handler = handler
        # re-entrant, so that an event may post another, which then runs after it
        self._lock = threading.RLock()
        self._arena = None if arena is None else _ArenaHere(arena, self._lock)
        self._connections: dict[int, InProcessConnection] = {}
        self._posted: deque[Callable[[], Iterable[Reply]]] = deque()
        self._is_in_event = False
        self._is_closed = False
        self._num_accepted = self._num_messages = self._num_refused = self._bytes_in = self._bytes_out = 0

    def connect(self, peer_name: str = "ps-0") -> InProcessConnection:
        """Return a new connection; `peer_name` is for error messages.

        Raises BrokenPeerError if the server is closed.
        """
        with self._lock:
            if self._is_closed:
                raise BrokenPeerError(peer_name, "it is closed")
            self._num_accepted += 1
            connection = InProcessConnection(self, self._num_accepted, peer_name, self._lock, self._arena)
            self._connections[connection.number] = connection
            return connection

    def post(self, event: Callable[[], Iterable[Reply]]) -> None:
        """Run an event of the ps itself, now or after the event under way, and deliver the replies that it returns.

        Raises ClosedError if the server is closed.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError("the server of a ps")
            self._posted.append(event)
            self._run(None)

    def statistics(self) -> dict[str, int]:
        """Return counts: `connections` open now; `accepted`, `refused`, `messages`, `bytes_in`, `bytes_out` in all."""
        with self._lock:
            return {
                "connections": len(self._connections),
                "accepted": self._num_accepted,
                "refused": self._num_refused,
                "messages": self._num_messages,
                "bytes_in": self._bytes_in,
                "bytes_out": self._bytes_out,
            }

    def close(self) -> None:
        """End all connections without calling the handler. Idempotent."""
        self._end("it is closed", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, reason: str, cause: BaseException | None) -> None:
        with self._lock:
            self._is_closed = True
            for connection in self._connections.values():
                connection._break(reason, cause)
            self._connections.clear()

    # The rest runs under the lock, called by the server's own connections.

    def _take(self, connection: InProcessConnection, message: Message) -> None:
        self._run(lambda: self._handle(connection, message))

    def _leave(self, connection: InProcessConnection) -> None:
        if self._connections.pop(connection.number, None) is not None and connection.is_handled:
            self._run(lambda: self._deliver(self._handler.disconnected(connection.number)))

    def _run(self, event: Callable[[], None] | None) -> None:
        """Run an event, then all that it posted; inside an event, leave posted events to the outer call."""
        if self._is_in_event:
            assert event is None, "a handler used a connection to its own ps"
            return
        self._is_in_event = True
        try:
            if event is not None:
                event()
            while self._posted:
                self._deliver(self._posted.popleft()())
        except BaseException as error:
            self._end(f"its handler failed: {error!r}", error)
            raise
        finally:
            self._is_in_event = False

    def _handle(self, connection: InProcessConnection, message: Message) -> None:
        number = connection.number
        try:
            body = self._checked(number, message)
            self._num_messages += 1
            self._bytes_in += HEADER.size + len(body)
            connection.is_handled = True
            if body is not message.body:
                message = message.with_body(body)
            self._deliver(self._handler.handle(number, message))
        except ProtocolError as error:
            self._num_refused += 1
            del self._connections[number]
            connection._answer(refusal("protocol", error.reason))
            connection._break("it refused a request and disconnected", None)
            if connection.is_handled:
                self._deliver(self._handler.disconnected(number))

    def _checked(self, number: int, message: Message) -> memoryview:
        if message.kind.is_reply:
            raise ProtocolError("peer", f"{message.kind.name} is not a request")
        body = body_view(message)
        limit = self._handler.max_body_bytes(number, message.kind)
        if len(body) > limit:
            raise ProtocolError(
                "peer", f"announced {len(body)} bytes as the body of {message.kind.name}, at most {limit} are allowed"
            )
        return body

    def _deliver(self, replies: Iterable[Reply]) -> None:
        for number, message in replies:
            connection = self._connections.get(number)
            if connection is not None:  # otherwise it vanished while its reply was held
                self._bytes_out += HEADER.size + connection._answer(message)


class InProcessConnection(Connection):
    """The result of `InProcessServer.connect`."""

    transport = "in-process"
    is_direct = True

    def __init__(
        self, server: InProcessServer, number: int, peer: str, lock: threading.RLock, arena: ReadableArena | None
    ) -> None:
        self.peer = peer
        self.arena = arena
        self.number = number
        """The handler's number of this connection."""
        self.is_handled = False
        """Whether the handler has received a message of it."""
        self._server = server
        self._lock = lock
        self._changed = threading.Condition(lock)
        self._is_blocked = False
        """Whether a thread waits for the reply."""
        self._is_waiting = False
        self._reply: Message | None = None
        self._into: memoryview | None = None
        self._is_closed = False
        self._broken: tuple[str, BaseException | None] | None = None
        self._num_requests = self._bytes_out = self._bytes_in = 0

    def shake_hands(self, timeout_secs: float) -> None:  # noqa: D102
        pass  # both ends are in one process

    def send(self, message: Message) -> None:  # noqa: D102
        with self._lock:
            self._send(message)

    def receive(self, timeout_secs: float, into: memoryview | None = None) -> Message:  # noqa: D102
        with self._lock:
            return self._receive(timeout_secs, into)

    def request(self, message: Message, timeout_secs: float, into: memoryview | None = None) -> Message:  # noqa: D102
        with self._lock:
            self._into = into  # known before the event, so the reply is copied once
            try:
                self._send(message)
                return self._receive(timeout_secs, into)
            finally:
                self._into = None

    def share(self, timeout_secs: float) -> None:  # noqa: D102
        pass  # the two share their memory already

    def outbox(self, nbytes: int) -> memoryview | None:  # noqa: D102
        return None

    def keep(self) -> bool:  # noqa: D102
        return True  # each body is its own object

    def statistics(self) -> dict[str, int | str]:  # noqa: D102
        return {
            "peer": self.peer,
            "transport": self.transport,
            "why": "same process",
            "requests": self._num_requests,
            "bytes_out": self._bytes_out,
            "bytes_in": self._bytes_in,
        }

    def close(self) -> None:  # noqa: D102
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._server._leave(self)

    def _send(self, message: Message) -> None:
        self._check()
        if self._is_waiting:
            raise ProtocolError("this role", "it sent a request before it received the reply to the last one")
        if self._broken is not None:
            raise self._broken_error()
        self._is_waiting = True
        self._num_requests += 1
        self._bytes_out += HEADER.size + memoryview(message.body).nbytes
        self._server._take(self, message)

    def _receive(self, timeout_secs: float, into: memoryview | None) -> Message:
        self._check()
        if not self._is_waiting and self._broken is None:
            raise ProtocolError("this role", "it waits for a reply but has sent no request")
        reply = self._reply or self._wait(timeout_secs, into)
        self._reply = None
        self._is_waiting = False
        self._bytes_in += HEADER.size + len(reply.body)
        if reply.kind is Kind.REFUSED:
            raise refused_error(self.peer, reply)
        if into is not None and reply.body is not into and len(reply.body) == len(into):
            into[:] = reply.body  # it arrived before its destination was known
            reply.body = into
        return reply

    def _wait(self, timeout_secs: float, into: memoryview | None) -> Message:
        self._into, self._is_blocked = into, True
        try:
            is_over = self._changed.wait_for(lambda: self._reply is not None or self._broken is not None, timeout_secs)
        finally:
            self._into, self._is_blocked = None, False
        if self._reply is not None:
            return self._reply
        if is_over:
            raise self._broken_error()
        raise WaitTimeoutError(self.peer, "reply", timeout_secs)

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError(f"the connection to {self.peer}")

    def _broken_error(self) -> PsflowError:
        assert self._broken is not None
        reason, cause = self._broken
        error = BrokenPeerError(self.peer, reason)
        error.__cause__ = cause
        return error

    # Called by the server, under the lock.

    def _answer(self, message: Message) -> int:
        """Take a reply, with a copy of its body; return the length of the body."""
        is_due = self._is_waiting and self._reply is None
        assert is_due, f"connection {self.number} gets a reply without a request"
        body = whole_body(message)
        if self._into is not None and len(self._into) == len(body):
            self._into[:] = body
            self._reply = message.with_body(self._into)
        elif type(message.body) is bytes and not message.tail:
            self._reply = message
        else:
            self._reply = message.with_body(bytes(body))
        if self._is_blocked:
            self._changed.notify_all()
        return len(body)

    def _break(self, reason: str, cause: BaseException | None) -> None:
        self._broken = (reason, cause)
        if self._is_blocked:
            self._changed.notify_all()
