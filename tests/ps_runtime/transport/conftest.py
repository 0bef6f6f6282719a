"""A handler that shows what a transport does with it, and a ps around it for each transport."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import threading
from collections.abc import Callable, Iterable, Iterator

import pytest

from psflow.ps_runtime.cluster.own_security import new_pem
from psflow.ps_runtime.errors import ClosedError, ProtocolError
from psflow.ps_runtime.protocol.message import Kind, Message, Reply, refusal
from psflow.ps_runtime.transport.base import Connection
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.in_process import InProcessServer
from psflow.ps_runtime.transport.socket_server import SocketServer

TIMEOUT_SECS = 200.0
CERTIFICATE = new_pem()


class Probe:
    """STATISTICS echoes, PULL returns the arena, PUSH fills it, AWAIT_SNAPSHOT waits for COMMITTED, the rest fails."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, Kind, bytes]] = []
        self.gone: list[int] = []
        self.held: list[int] = []
        self.arena = bytearray(b"\1" * 16)
        self.limit = 1 << 24
        self.changed = threading.Condition()
        self._is_busy = threading.Lock()

    def handle(self, peer: int, message: Message) -> Iterable[Reply]:
        assert self._is_busy.acquire(blocking=False), "two events at once"
        try:
            with self.changed:
                self.seen.append((peer, message.kind, bytes(message.body)))
                self.changed.notify_all()
            return self._answer(peer, message)
        finally:
            self._is_busy.release()

    def _answer(self, peer: int, message: Message) -> list[Reply]:
        match message.kind:
            case Kind.STATISTICS:
                return [(peer, dataclasses.replace(message, kind=Kind.DONE))]
            case Kind.PULL:
                return [(peer, Message(Kind.PARAMETERS, body=self.arena))]
            case Kind.PUSH:
                self.arena[:] = bytes(message.body[:1]) * len(self.arena)
                return [(peer, Message(Kind.DONE))]
            case Kind.AWAIT_SNAPSHOT:
                self.held.append(peer)
                return []
            case Kind.COMMITTED:
                return [*self.release(), (peer, Message(Kind.DONE))]
            case Kind.NEXT:
                return [(peer, refusal("unknown-replica", "worker 7 is no replica"))]
            case Kind.STOP:
                raise ZeroDivisionError("a bug of the handler")
        raise ProtocolError("peer", f"{message.kind.name} is not for now")

    def release(self) -> list[Reply]:
        replies = [(peer, Message(Kind.SNAPSHOT_DUE, step=12, body=self.arena)) for peer in self.held]
        self.held.clear()
        return replies

    def disconnected(self, peer: int) -> Iterable[Reply]:
        with self.changed:
            self.gone.append(peer)
            self.changed.notify_all()
        return self.release() if peer not in self.held else []

    def max_body_bytes(self, peer: int, kind: Kind) -> int:
        return self.limit

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, TIMEOUT_SECS)


class Ps:
    """A ps with one transport; over sockets its loop runs in a thread until it is closed or fails."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.probe = Probe()
        self.error: BaseException | None = None
        self._connections: list[Connection] = []
        self._is_stopping = False
        self.server: InProcessServer | SocketServer
        if kind == "in-process":
            self.server = InProcessServer(self.probe)
        else:
            host = "127.0.0.1" if kind == "tcp" else None
            self.server = SocketServer(self.probe, host, kind != "tcp", certificate=CERTIFICATE)
            self._thread = threading.Thread(target=self._loop)
            self._thread.start()

    def _loop(self) -> None:
        assert isinstance(self.server, SocketServer)
        try:
            while not self._is_stopping:
                self.server.run_once(TIMEOUT_SECS)
        except ZeroDivisionError as error:
            self.error = error
        finally:
            self.server.close()

    def connect(self) -> Connection:
        if isinstance(self.server, InProcessServer):
            connection: Connection = self.server.connect("ps-0")
        else:
            connection = connect(self.server.address, self.kind, TIMEOUT_SECS, "ps-0", certificate=CERTIFICATE)
            connection.shake_hands(TIMEOUT_SECS)
            connection.share(TIMEOUT_SECS)
        self._connections.append(connection)
        return connection

    def settle(self) -> None:
        """Wait until the event under way is over."""
        is_over = threading.Event()
        self.server.post(lambda: is_over.set() or [])
        assert is_over.wait(TIMEOUT_SECS)

    def _stop(self) -> Iterable[Reply]:
        self._is_stopping = True
        return []

    def close(self) -> None:
        if isinstance(self.server, InProcessServer):
            self.server.close()
        else:
            with contextlib.suppress(ClosedError):  # its loop may have failed
                self.server.post(self._stop)
            self._thread.join(TIMEOUT_SECS)

    def abandon(self) -> None:
        for connection in self._connections:
            connection.close()
        self.close()


@pytest.fixture(params=["in-process", "unix", "tcp", "shm"])
def ps(request: pytest.FixtureRequest) -> Iterator[Ps]:
    service = Ps(request.param)
    yield service
    service.abandon()


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left_to_collect() -> None:
    """Collect what tests of other rooms have left, lest its files are closed while those of a test are counted."""
    gc.collect()
    gc.freeze()  # the next module looks only at what is new


@pytest.fixture(autouse=True)
def nothing_leaks(_nothing_is_left_to_collect: None) -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    yield
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == before
