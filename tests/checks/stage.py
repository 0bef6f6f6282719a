"""A stage of a check: commands side by side, within a limit, of which nothing is left when it has ended."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from tests.checks.outcome import Outcome, Rerun, failed_tests, num_passed

__all__ = ["RESULTS", "Command", "Stage", "adopt_orphans", "end_others", "pytest_command", "run"]

RESULTS = Path("runs", "ci")
"""Where junit files and logs of the latest check are, below the root of the checkout."""
MAX_RERUNS = 2
"""More failures of `measured` tests than these are not the noise of a machine."""
POLL_SECS = 0.02
END_SECS = 30.0
"""For pytest to end its fixtures and print its failures after the limit."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


@dataclass(frozen=True)
class Command:
    """A command of a stage; with `results`, it is pytest, and leaves what it found in that folder."""

    words: tuple[str, ...]
    results: Path | None = None


@dataclass(frozen=True)
class Stage:
    """Commands that run side by side.

    Parameters
    ----------
    name : str
        Short, unique within a check.
    commands : tuple of Command
        The first one writes to the terminal; the output of the others follows when they have ended.
    budget_secs : float
        What the stage may take on a quiet machine; the table says where it took more.
    limit_secs : float
        After which the stage hangs, and is ended.
    may_rerun : bool
        Whether up to two failed tests run once more, alone: only where tests measure time.
    may_be_empty : bool
        Whether pytest may find no test.
    """

    name: str
    commands: tuple[Command, ...]
    budget_secs: float
    limit_secs: float = 1800.0
    may_rerun: bool = False
    may_be_empty: bool = False


def adopt_orphans() -> None:
    """Have processes whose parent has ended become children of this one, so that they end with their stage."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def run(stage: Stage) -> Outcome:
    """Run a stage to its end, and again what may run again; print what its commands print."""
    print(f"\n=== {stage.name} ===", flush=True)
    outcome = _run_once(stage)
    tests = outcome.failed_tests
    if stage.may_rerun and 0 < len(tests) <= MAX_RERUNS and not outcome.problems:
        print(f"\n=== {stage.name}: once more, alone, what failed at load {outcome.load:.1f} ===", flush=True)
        [command] = stage.commands
        again = _run_once(replace(stage, commands=(_rerun_of(command, tests),), may_be_empty=False))
        rerun = Rerun(tests, outcome.load, again.failed_tests, again.load)
        outcome = replace(
            again,
            secs=outcome.secs + again.secs,
            cpu_secs=outcome.cpu_secs + again.cpu_secs,
            num_passed=outcome.num_passed + again.num_passed,
            rerun=rerun,
        )
    return outcome


def _rerun_of(command: Command, tests: Sequence[str]) -> Command:
    assert command.results is not None
    results = command.results.with_name(f"{command.results.name}-again")
    return pytest_command(results, *tests, "-o", "faulthandler_timeout=0")


def pytest_command(results: Path, *arguments: str) -> Command:
    """Return the command that runs pytest, and leaves in `results` which tests failed, and a junit file."""
    cache = ("-o", f"cache_dir={results / 'cache'}", f"--junit-xml={results / 'junit.xml'}")
    return Command((sys.executable, "-m", "pytest", *arguments, *cache), results)


def _run_once(stage: Stage) -> Outcome:
    began_at = time.monotonic()
    logs: dict[int, Path] = {}
    pids: dict[int, Command] = {}
    for index, command in enumerate(stage.commands):
        if command.results is not None:
            shutil.rmtree(command.results, ignore_errors=True)
            command.results.mkdir(parents=True)
        if index:
            logs[index] = RESULTS / f"{stage.name}-{index}.log"
            logs[index].parent.mkdir(parents=True, exist_ok=True)
        pids[_started(command, logs.get(index))] = command
    codes, cpu_secs = _reap(set(pids), began_at + stage.limit_secs)
    load = os.getloadavg()[0]
    problems = []
    for pid, command in pids.items():
        code = codes[pid]
        if code is None:
            problems.append(f"not done within {stage.limit_secs:g} s: {' '.join(command.words)}")
        elif code not in _accounted_for(command, stage):
            problems.append(f"exit code {code}: {' '.join(command.words)}")
    for log in logs.values():
        print(log.read_text(errors="replace"), flush=True)
    for name in end_others():
        print(f"ended what {stage.name} left: {name}", flush=True)
    results = [command.results for command in stage.commands if command.results is not None]
    return Outcome(
        stage.name,
        stage.budget_secs,
        time.monotonic() - began_at,
        cpu_secs,
        load,
        sum(map(num_passed, results)),
        tuple(test for folder in results for test in failed_tests(folder)),
        tuple(problems),
    )


def _started(command: Command, log: Path | None) -> int:
    """Start a command, which writes to the terminal or to `log`; return its process id.

    Not by `subprocess`, which may bury a process that it no longer knows before `_reap` sees it.
    """
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = []
    if log is not None:
        actions.append((os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
    return os.posix_spawnp(command.words[0], command.words, os.environ, file_actions=actions)


def _reap(pids: set[int], deadline: float) -> tuple[dict[int, int | None], float]:
    """Wait for processes, and bury those that were adopted; return exit codes (None: ended here), and CPU seconds."""
    codes: dict[int, int | None] = {}
    cpu_secs = 0.0
    is_over = False
    while pids - codes.keys():
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        cpu_secs += usage.ru_utime + usage.ru_stime
        if pid in pids:
            codes[pid] = None if is_over else os.waitstatus_to_exitcode(status)
        elif pid == 0:
            time.sleep(POLL_SECS)
            if time.monotonic() > deadline:
                number, deadline = (signal.SIGKILL, deadline) if is_over else (signal.SIGINT, deadline + END_SECS)
                is_over = True
                for left in pids - codes.keys():
                    with suppress(ProcessLookupError):
                        os.kill(left, number)
    return codes, cpu_secs


def _accounted_for(command: Command, stage: Stage) -> set[int]:
    """Return the exit codes of a command that say nothing beyond the tests that it names as failed."""
    if command.results is None:
        return {0}
    return {0, *[1] * bool(failed_tests(command.results)), *[5] * stage.may_be_empty}


def end_others() -> list[str]:
    """Kill all processes below this one; return their commands."""
    left = psutil.Process().children(recursive=True)
    names = []
    for process in left:
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE:
                names.append(" ".join(process.cmdline()) or process.name())
            process.kill()
    psutil.wait_procs(left, timeout=END_SECS)
    return names
