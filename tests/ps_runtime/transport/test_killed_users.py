"""kill -9 of any user of shared memory leaves nothing behind, and the others go on. Real processes."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from psflow.ps_runtime.errors import BrokenPeerError
from psflow.ps_runtime.protocol.message import Kind, Message
from psflow.ps_runtime.transport.arena import Arena
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.listeners import Address
from psflow.ps_runtime.transport.socket_client import SocketConnection
from psflow.ps_runtime.transport.socket_server import SocketServer

pytestmark = pytest.mark.process


SECS = 200.0
ARENA_BYTES = 2_000_000
BODY_BYTES = 100_000


class Processes:
    """Children of the test, which end without any clean-up of their own."""

    def __init__(self) -> None:
        self._pids: set[int] = set()

    def start(self, work: Callable[[], None]) -> int:
        pid = os.fork()
        if not pid:
            try:
                work()
            finally:
                os._exit(1)
        self._pids.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._pids.discard(pid)

    def kill_all(self) -> None:
        for pid in list(self._pids):
            self.kill(pid)


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.kill_all()


class Pages:
    """Answers each push by a new version of the arena, full of its number."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.version = 0
        self.pushers: set[int] = set()
        self.gone: list[int] = []

    def handle(self, peer, message):
        self.pushers.add(peer)
        if message.kind is Kind.PUSH:
            assert len(message.body) == BODY_BYTES
            self.version += 1
            self.arena.begin(self.version)
            self.arena.advance(0, self.arena.bytes.size)
            self.arena.bytes.fill(self.version % 256)
            self.arena.end()
        return [(peer, Message(Kind.DONE, version=self.version))]

    def disconnected(self, peer):
        self.gone.append(peer)
        return []

    def max_body_bytes(self, peer, kind):
        return BODY_BYTES


def open_connection(address: Address) -> SocketConnection:
    connection = connect(address, "shm", SECS)
    connection.share(SECS)
    return connection


def push(connection: SocketConnection) -> int:
    return connection.request(Message(Kind.PUSH, body=connection.outbox(BODY_BYTES)), SECS).version


def train(address: Address) -> None:
    """Push and read for ever, and fail at a torn version."""
    connection = open_connection(address)
    into = np.zeros(ARENA_BYTES, np.uint8)
    while True:
        push(connection)
        version = connection.arena.read(into)
        assert version is None or (into == version % 256).all()


def read_and_never_end(address: Address) -> None:
    connection = open_connection(address)
    connection._shared.mailbox.mark[0] = 1
    push(connection)
    signal.pause()


def deposit_and_push_no_more(address: Address) -> None:
    connection = open_connection(address)
    push(connection)
    assert connection.deposit(Message(Kind.PUSH, body=connection.outbox(BODY_BYTES)))
    os.kill(os.getpid(), signal.SIGKILL)


def serve(say_address: int) -> None:
    arena = Arena.shared(ARENA_BYTES)
    server = SocketServer(Pages(arena), None, arena=arena)
    os.write(say_address, json.dumps(server.address.to_dict()).encode())
    while True:
        server.run_once(SECS)


def memories(pid: int | str) -> set[str]:
    """Return the inodes of psflow's memory that a process has open or mapped."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(fd).startswith("/memfd:psflow"):
                found.add(str(fd.stat().st_ino))
        except FileNotFoundError:
            continue
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return found | {line.split()[4] for line in maps if "/memfd:psflow" in line}


@pytest.fixture
def others() -> set[str]:
    """The memory that earlier tests of this process left to the garbage collector, and that it may still hold."""
    gc.collect()
    return memories("self")


def users_of(inodes: set[str]) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and memories(process.name) & inodes:
                found.append(process.name)
        except OSError:
            continue  # it has just ended, or is another user's
    return found


@pytest.fixture
def ps() -> Iterator[tuple[SocketServer, Pages]]:
    arena = Arena.shared(ARENA_BYTES)
    pages = Pages(arena)
    with SocketServer(pages, None, arena=arena, takes_deposits=True) as server:
        yield server, pages
    arena.close()


def run_until(server: SocketServer, condition: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if condition():
            return
        server.run_once(SECS)
    raise AssertionError("it never came about")


def test_a_replica_that_is_killed_at_any_moment_is_gone_and_the_others_go_on(others, ps, processes):
    server, pages = ps
    before = memories("self")
    other = processes.start(lambda: train(server.address))
    run_until(server, lambda: pages.version > 0)
    with_one = memories("self")
    for num_killed, num_pushes in enumerate((40, 77, 200), start=1):
        victim = processes.start(lambda: train(server.address))
        run_until(server, lambda num_killed=num_killed: len(pages.pushers) == 1 + num_killed)
        goal = pages.version + num_pushes
        run_until(server, lambda goal=goal: pages.version >= goal)
        lost = memories("self") - with_one
        processes.kill(victim)
        run_until(server, lambda num_killed=num_killed: len(pages.gone) == num_killed)
        assert memories("self") == with_one
        assert users_of(lost) == []
        goal = pages.version + 20
        run_until(server, lambda goal=goal: pages.version >= goal)
    processes.kill(other)
    run_until(server, lambda: len(pages.gone) == 4)
    assert memories("self") == before
    assert not any(name.startswith("psflow") for name in os.listdir("/dev/shm"))


def test_a_deposit_outlives_a_process_that_is_killed(ps, processes):
    server, pages = ps
    processes.start(lambda: deposit_and_push_no_more(server.address))
    run_until(server, lambda: pages.gone == [1])
    assert pages.version == 2


def test_a_reader_that_is_killed_holds_the_ps_up_once_at_most(ps, processes):
    server, pages = ps
    victim = processes.start(lambda: read_and_never_end(server.address))
    run_until(server, lambda: pages.version == 1)
    other = processes.start(lambda: train(server.address))
    run_until(server, lambda: pages.version >= 50)
    assert server._marks._overdue == {1: 1}
    processes.kill(victim)
    run_until(server, lambda: pages.gone == [1])
    assert server._marks._overdue == {}
    processes.kill(other)


def test_a_ps_that_is_killed_leaves_its_memory_to_its_readers_alone(others, processes):
    hear_address, say_address = os.pipe()
    ps = processes.start(lambda: serve(say_address))
    address = Address.from_dict(json.loads(os.read(hear_address, 4096)))
    os.close(hear_address)
    os.close(say_address)
    with open_connection(address) as connection:
        version = push(connection)
        inodes = memories("self") - others
        assert len(inodes) == 2
        processes.kill(ps)
        assert users_of(inodes) == [str(os.getpid())]
        into = np.zeros(ARENA_BYTES, np.uint8)
        assert connection.arena.read(into) == version
        with pytest.raises(BrokenPeerError):
            push(connection)
        assert connection.arena is None
    assert users_of(inodes) == []
