"""Whether a process computes or waits for ever, as its nanny finds out."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.ps_runtime.cluster import processor_use as module
from psflow.ps_runtime.cluster.processor_use import is_busy, is_runnable


@pytest.mark.parametrize(
    ("what", "processor_secs", "runnable", "busy"),
    [
        ("serve", [5.0, 5.0], True, False),
        ("serve", [5.0, 5.125], True, False),
        ("serve", [5.0, 5.25], False, True),
        ("answer", [5.0, 5.0], False, False),
        ("answer", [5.0, 5.0], True, True),
        ("answer", [5.0, 5.03125], False, True),
        ("answer", [5.0, None], True, False),
    ],
)
def test_a_nanny_tells_a_process_that_computes_from_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, what: Any, processor_secs: list[float | None], runnable: bool, busy: bool
) -> None:
    def cpu_times() -> Any:
        secs = processor_secs.pop(0)
        if secs is None:
            raise module.psutil.NoSuchProcess(7)
        return SimpleNamespace(user=secs - 1, system=1.0)

    monkeypatch.setattr(module.psutil, "Process", lambda pid: SimpleNamespace(cpu_times=cpu_times))
    monkeypatch.setattr(module, "WATCH_SECS", 0.0)
    monkeypatch.setattr(module, "is_runnable", lambda pid: runnable)
    assert asyncio.run(is_busy(what, SimpleNamespace(pid=7))) is busy  # type: ignore[arg-type]


@pytest.mark.process
def test_who_runs_is_runnable_and_who_is_stopped_is_not() -> None:
    assert is_runnable(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as stopped:
        stopped.send_signal(signal.SIGSTOP)
        os.waitpid(stopped.pid, os.WUNTRACED)
        assert not is_runnable(stopped.pid)
        stopped.kill()
    assert not is_runnable(stopped.pid)


def test_a_nanny_without_a_process_says_that_nothing_computes() -> None:
    assert asyncio.run(is_busy("answer", SimpleNamespace(pid=None))) is False  # type: ignore[arg-type]
