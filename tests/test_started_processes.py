"""What a test starts is counted, and does not outlive it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable

import psutil
import pytest

from tests.started_processes import all_ended, num_started, uncounted

pytestmark = pytest.mark.process

SLEEP = ["sleep", "1000"]


def by_subprocess() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def by_multiprocessing() -> None:
    process = multiprocessing.get_context("fork").Process(target=os.getpid)
    process.start()
    process.join()


def by_fork() -> None:
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)


def by_posix_spawn() -> None:
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ), 0)


@pytest.mark.parametrize("start", [by_subprocess, by_multiprocessing, by_fork, by_posix_spawn])
def test_a_process_is_counted_however_it_is_started(start: Callable[[], None]) -> None:
    before = num_started()
    start()
    assert num_started() > before
    before = num_started()
    with uncounted():
        start()
    assert num_started() == before


def test_what_is_left_ends_with_all_below_it_also_after_a_failure_and_what_was_there_before_goes_on() -> None:
    program = f"import subprocess; child = subprocess.Popen({SLEEP!r}); print(child.pid, flush=True); child.wait()"
    found: list[psutil.Process] = []

    def fail() -> None:
        left = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert left.stdout is not None
        found.extend(map(psutil.Process, (left.pid, int(left.stdout.readline()))))
        left.stdout.close()
        raise ZeroDivisionError

    with subprocess.Popen(SLEEP) as earlier:
        with pytest.raises(ZeroDivisionError), all_ended():
            fail()
        assert earlier.poll() is None
        earlier.kill()
    assert [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []
