"""The leak guard finds what it is there to find."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from multiprocessing.shared_memory import SharedMemory

import pytest
from prefect import flow, get_run_logger

from tests.leak_guard import SHARED_MEMORY, SharedMemoryWatch, no_leaks


def a_process(stack: ExitStack) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    stack.callback(process.wait)
    stack.callback(process.stdin.close)


def a_thread(stack: ExitStack) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="left")
    thread.start()
    stack.callback(thread.join)
    stack.callback(ended.set)


def a_tcp_socket(stack: ExitStack) -> None:
    stack.enter_context(socket.create_server(("127.0.0.1", 0)))


def a_unix_socket(stack: ExitStack) -> None:
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(f"\0psflow-test-{os.getpid()}")
    listener.listen()


def shared_memory(stack: ExitStack) -> None:
    stack.callback(os.close, os.memfd_create("left"))


def named_shared_memory(stack: ExitStack) -> None:
    memory = SharedMemory(f"psflow-test-{os.getpid()}", create=True, size=1)
    stack.callback(memory.unlink)
    stack.callback(memory.close)


def a_temporary_file(stack: ExitStack) -> None:
    stack.enter_context(tempfile.TemporaryDirectory())


@pytest.mark.process
@pytest.mark.parametrize(
    ("leak", "name"),
    [
        (a_process, "process .*input"),
        (a_thread, "thread left"),
        (a_tcp_socket, "socket .*127.0.0.1.*LISTEN"),
        (a_unix_socket, "socket .*psflow-test"),
        (shared_memory, "file descriptor .*memfd:left"),
        (named_shared_memory, "shared memory .*psflow-test"),
        (a_temporary_file, "temporary file .*/tmp"),
    ],
)
def test_a_leak_fails_the_test(leak, name):
    fails = pytest.raises(pytest.fail.Exception, match=f"(?s)left behind after 0 s:.*{name}")
    with ExitStack() as stack, fails, no_leaks(settle_secs=0.0):
        leak(stack)


def test_what_ends_in_time_is_no_leak():
    ended = threading.Event()
    with no_leaks():
        threading.Thread(target=ended.wait, name="left").start()
        threading.Timer(0.05, ended.set).start()


ORPHAN = """
import os, sys, time
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:  # until then it is a child of the tests
    time.sleep(0.001)
with open(sys.argv[1], "x"):
    pass
with open(sys.argv[2], "x"):
    print("made", flush=True)
    input()
for path in sys.argv[1:]:
    os.unlink(path)
"""


@pytest.mark.process
def test_what_another_program_makes_is_no_leak():
    paths = [SHARED_MEMORY / f"sem.psflow-test-{os.getpid()}-{what}" for what in ("left", "held")]
    with no_leaks(settle_secs=0.0):
        command = [sys.executable, "-c", ORPHAN, *paths]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert program.stdout is not None
        assert program.stdout.readline() == b"made\n"
        program.wait()
    assert all(path.exists() for path in paths)
    program.communicate(b"\n")
    assert not any(path.exists() for path in paths)


@pytest.mark.process
def test_what_a_killed_process_of_ours_made_is_a_leak():
    path = SHARED_MEMORY / f"psflow-test-{os.getpid()}"
    code = "import sys; file = open(sys.argv[1], 'x'); print('made', flush=True); input()"
    with SharedMemoryWatch() as watch:
        with subprocess.Popen(
            [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"made\n"
            assert watch.left() == {f"shared memory {path}"}
            child.kill()
        assert watch.left() == {f"shared memory {path}"}
        path.unlink()
        assert watch.left() == set()


@pytest.mark.process(shared=True)
@pytest.mark.usefixtures("prefect_named")
def test_what_prefect_sends_late_of_an_earlier_flow_is_no_leak():
    @flow
    def earlier() -> None:
        get_run_logger().info("sent by a thread, 2 s later at most")

    earlier()
    with no_leaks(0):
        threading.Event().wait(2.5)
