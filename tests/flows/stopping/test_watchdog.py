"""The end of a command in time, whatever its main thread waits for: in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial

import psutil
import pytest

from psflow.flows import cli
from psflow.flows.stopping import watchdog
from psflow.flows.stopping.watchdog import Watchdog
from psflow.ps_runtime.deadline import StopClock

PROGRAM = """
import signal, subprocess, sys, threading
from psflow.flows.stopping import watchdog
from psflow.ps_runtime.deadline import stop_clock
watchdog.ROLES_SECS = watchdog.END_SECS = 0.0
watchdog.Watchdog(stop_clock, lambda exit_code: watchdog.write_now(2, f"ended with {exit_code}")).start()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)  # as a library may do
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
print(child.pid, flush=True)
threading.Event().wait()
"""


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_waits_for_ever_ends_with_its_exit_code_and_its_children(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(number)
        _, err = process.communicate(timeout=200)
    assert (process.returncode, err) == (128 + number, f"ended with {128 + number}")
    psutil.wait_procs([child], 200)
    assert not child.is_running()


def test_roles_are_killed_first_and_a_cancellation_counts_as_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    now = 0.0

    def sleep(secs: float) -> None:
        nonlocal now
        now += secs
        done.append(now)

    clock = StopClock(lambda: now)
    clock.arm()
    clock.begin(signal.SIGTERM)
    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr(watchdog, "_kill_workers", partial(done.append, "roles"))
    monkeypatch.setattr(watchdog, "_kill_descendants", partial(done.append, "all"))
    Watchdog(clock, done.append, lambda exit_code: done.append(f"exit {exit_code}"))._watch()
    assert done == [3.0, "roles", 8.0, "all", 143, "exit 143"]


def test_a_child_that_cannot_be_killed_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = []

    class Child:
        def __init__(self, is_ours: bool) -> None:
            self.is_ours = is_ours

        def kill(self) -> None:
            if not self.is_ours:
                raise psutil.AccessDenied(1)
            killed.append(self)

    children = [Child(False), Child(True)]
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: children)
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    watchdog._kill_descendants()
    assert killed == children[1:]


def test_a_descriptor_that_select_does_not_know_ends_nothing() -> None:
    watchdog.write_now(1024, "the last line")


def test_the_last_line_says_that_the_same_command_resumes(capfd: pytest.CaptureFixture[str]) -> None:
    cli._report_end(["train"], None, 130)
    words = (
        "psflow: interrupted (Ctrl-C, SIGINT); run the same command again to resume; the next psflow command records"
    )
    assert capfd.readouterr().err.startswith(words)
    cli._report_end(["train"], sys.__stdout__, 143)
    assert json.loads(capfd.readouterr().out)["error"]["type"] == "SystemExit"
    cli._report_end(["serve", "line.yaml"], None, 130)
    assert "SIGINT); run the same command again to serve again; " in capfd.readouterr().err
