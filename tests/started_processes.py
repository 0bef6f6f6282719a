"""What tests start: a test that starts a process says so by its mark, and nothing of it outlives the test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from multiprocessing.process import BaseProcess
from typing import Any

import psutil
import pytest

from tests.leak_guard import LIBRARY_PROCESSES

__all__ = ["all_ended", "count_starts", "mark_processes", "num_started", "uncounted"]

FIXTURES = {"elsewhere", "prefect_named", "prefect_url"}
"""Those that start a process for the first test that asks, and keep it for others."""

END_SECS = 10.0
_num_started = 0


def mark_processes(items: list[pytest.Item]) -> None:
    """Mark the tests whose other marks or fixtures say that they start processes."""
    for item in items:
        is_told = any(map(item.get_closest_marker, ("browser", "cluster")))
        if is_told or FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.process)


def count_starts() -> None:
    """Count from now on the processes that this one starts, by whichever call."""
    for owner, name in ((subprocess.Popen, "__init__"), (BaseProcess, "start"), (os, "fork"), (os, "posix_spawn")):
        setattr(owner, name, _counted(getattr(owner, name)))


def _counted(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    def counted(*args: Any, **kwargs: Any) -> Any:
        global _num_started
        _num_started += not _asks(*args)
        return start(*args, **kwargs)

    return counted


def _asks(*args: Any) -> bool:
    """Whether a library asks a program, once in each process: MLflow git for the commit, croniter file for the bits."""
    return len(args) > 1 and isinstance(args[1], list) and args[1][:1] in (["git"], ["file"])


def num_started() -> int:
    """Return how many processes this one has started so far."""
    return _num_started


@contextmanager
def uncounted() -> Iterator[None]:
    """Leave out what is started once for all tests of a run: it is no property of the test that is the first."""
    global _num_started
    before = _num_started
    yield
    _num_started = before


@contextmanager
def all_ended() -> Iterator[None]:
    """End what a test has started and left, with all below it, so that it disturbs no other test."""
    before = set(psutil.Process().children())
    try:
        yield
    finally:
        for child in set(psutil.Process().children()) - before:
            with suppress(psutil.NoSuchProcess):
                if not any(name in " ".join(child.cmdline()) for name in LIBRARY_PROCESSES):
                    _kill([child, *child.children(recursive=True)])


def _kill(family: list[psutil.Process]) -> None:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=END_SECS)
