"""A server that ends by itself is restarted on the same socket; not too often, and not while the command ends."""

from __future__ import annotations

import http.client
import logging
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from psflow.ps_runtime.deadline import StopClock
from psflow.tasks.prefect_server import monitor as module
from psflow.tasks.prefect_server import monitor as server_process
from psflow.tasks.prefect_server.monitor import Restarts, ServerMonitor, ServerProcess, ServerProgram
from tests.limits import HANG_SECS

pytestmark = pytest.mark.process

SERVING = """
import os, socket, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    connection = listener.accept()[0]
    asked = connection.recv(4096).decode()
    body = f"{os.environ['SECRET']} {os.getcwd()} {'Authorization: Basic ' in asked}"
    connection.sendall(f"HTTP/1.1 200 OK\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
    connection.close()
"""
FAILING = "raise SystemExit('no such table')"
SILENT = "import sys; sys.stdin.read()"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECS", 0.002)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what sets the program of each process that starts from then on."""
    path = tmp_path / "program.py"
    monkeypatch.setattr(server_process, "PROGRAM", path)
    path.write_text(SERVING)

    def write(text: str) -> None:
        path.write_text(text)

    return write


@pytest.fixture
def clock() -> StopClock:
    clock = StopClock()
    clock.arm()
    return clock


@pytest.fixture
def program(tmp_path: Path) -> Iterator[ServerProgram]:
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryFile() as log:
        yield ServerProgram(listener, "us:secret", {"SECRET": "same"}, str(tmp_path), log)


@pytest.fixture
def monitor(program: ServerProgram, clock: StopClock, write: Callable[[str], None]) -> Iterator[ServerMonitor]:
    """Give the monitor of a server that answers."""
    first = program.start()
    assert first.has_answered(HANG_SECS)
    kept = ServerMonitor(program, first, clock)
    yield kept
    kept.close()
    kept.process.end(HANG_SECS)
    assert not [child for child in psutil.Process().children() if str(server_process.PROGRAM) in child.cmdline()]


def kill(process: ServerProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: process.has_ended)


def answer(program: ServerProgram) -> str:
    with closing(program.ask()) as question:
        question.sock.settimeout(HANG_SECS)
        return question.getresponse().read().decode()


def wait_until(has_come: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_SECS
    while not has_come():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [f"{record.levelname} {record.getMessage()}" for record in caplog.records if record.name == module.__name__]


def test_a_killed_server_is_back_where_it_was_and_as_it_was(
    monitor: ServerMonitor, program: ServerProgram, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = monitor.process
    address = program.listener.getsockname()
    kill(first)
    assert answer(program) == f"same {tmp_path} True"  # the question waited until the next process took it
    monitor.settle(HANG_SECS)
    assert monitor.process.is_serving
    assert monitor.process.pid != first.pid
    assert program.listener.getsockname() == address
    assert said(caplog) == ["WARNING the Prefect server of this command was killed by SIGKILL; restarting it"]


def test_no_other_program_gets_the_port_of_a_server_that_is_away(
    monitor: ServerMonitor, program: ServerProgram, write: Callable[[str], None]
) -> None:
    write(SILENT)
    kill(monitor.process)
    wait_until(lambda: not monitor.process.is_serving)
    with pytest.raises(OSError, match="in use"):
        socket.create_server(program.listener.getsockname())


def test_a_server_that_ends_too_often_is_given_up_and_who_asks_it_learns_so(
    monitor: ServerMonitor, program: ServerProgram, write: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    write(FAILING)
    kill(monitor.process)
    monitor._is_given_up.wait(HANG_SECS)
    monitor.settle(HANG_SECS)  # which does not wait for one that will not come
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        answer(program)
    with pytest.raises(OSError, match="in use"):
        socket.create_server(program.listener.getsockname())
    again = "WARNING the Prefect server of this command ended with exit code 1; restarting it"
    what = "ended with exit code 1, after 3 restarts within 60 s; the command goes on without it"
    assert said(caplog)[1:] == [again, again, f"ERROR the Prefect server of this command {what}"]


def test_a_server_that_was_started_again_and_does_not_answer_is_given_up(
    monitor: ServerMonitor,
    write: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "START_SECS", 0.01)
    write(SILENT)
    kill(monitor.process)
    wait_until(lambda: len(said(caplog)) == 2)
    assert "was restarted and did not answer within 0.01 s" in said(caplog)[1]
    assert monitor.process.has_ended


def test_a_server_that_cannot_be_started_again_is_given_up(
    monitor: ServerMonitor, program: ServerProgram, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server_process.PROGRAM.unlink()
    tmp_path.rename(tmp_path.with_name("away"))  # where it is to work
    try:
        kill(monitor.process)
        wait_until(lambda: len(said(caplog)) == 2)
    finally:
        tmp_path.with_name("away").rename(tmp_path)
    assert "could not be restarted: [Errno 2] No such file or directory" in said(caplog)[1]


def test_a_server_that_ends_after_a_signal_is_not_started_again(
    monitor: ServerMonitor, clock: StopClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.begin(signal.SIGTERM)
    before = monitor.process
    with caplog.at_level(logging.INFO):
        kill(before)
        assert monitor._is_given_up.wait(HANG_SECS)
    assert monitor.process is before
    assert said(caplog) == []


def test_a_server_that_ends_after_the_monitor_is_not_started_again(
    monitor: ServerMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    before = monitor.process
    monitor.close()
    kill(before)
    assert monitor.process is before
    assert said(caplog) == []
    assert not monitor._thread.is_alive()


def test_the_end_comes_while_a_server_is_being_started_again(
    monitor: ServerMonitor, write: Callable[[str], None]
) -> None:
    write(SILENT)
    before = monitor.process
    kill(before)
    wait_until(lambda: monitor.process is not before)
    monitor.close()
    monitor.process.end(HANG_SECS)
    assert monitor.process.has_ended


def test_restarts_are_counted_within_a_time() -> None:
    restarts = Restarts(iter((0.0, 20.0, 40.0, 59.0, 60.0, 79.0, 80.0)).__next__)
    assert [restarts.take() for _ in range(7)] == [True, True, True, False, True, False, True]
