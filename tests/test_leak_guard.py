"""The leak guard finds what it is there to find."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest


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
    path = Path("/dev/shm") / f"psflow-test-{os.getpid()}"
    path.touch()
    stack.callback(path.unlink)


def a_temporary_file(stack: ExitStack) -> None:
    stack.enter_context(tempfile.TemporaryDirectory())


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
def test_a_leak_fails_the_test(no_leaks, leak, name):
    fails = pytest.raises(pytest.fail.Exception, match=f"(?s)left behind after 0 s:.*{name}")
    with ExitStack() as stack, fails, no_leaks(settle_secs=0.0):
        leak(stack)


def test_what_ends_in_time_is_no_leak(no_leaks):
    ended = threading.Event()
    with no_leaks():
        threading.Thread(target=ended.wait, name="left").start()
        threading.Timer(0.05, ended.set).start()


def test_what_another_program_has_mapped_is_no_leak(no_leaks):
    code = """
import mmap, os, sys
if os.fork():  # so that it is no child of the tests
    os._exit(0)
with open(sys.argv[1], "wb+") as file:
    file.truncate(4096)
    memory = mmap.mmap(file.fileno(), 4096)
print("mapped", flush=True)
input()
os.unlink(sys.argv[1])
print("gone", flush=True)
"""
    path = f"/dev/shm/sem.psflow-test-{os.getpid()}"
    with no_leaks(settle_secs=0.0):
        program = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert program.stdout is not None
        assert program.stdout.readline() == b"mapped\n"
    assert os.path.exists(path)
    program.communicate(b"\n")
    assert not os.path.exists(path)
