"""A stage of a check: it runs commands side by side within a time limit, and kills whatever they leave."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from tests.checks.failures import read_failures
from tests.checks.outcome import Outcome, Rerun, read_counts

__all__ = ["RESULTS", "Command", "Stage", "adopt_orphans", "end_others", "pytest_command", "run"]

RESULTS = Path("runs", "ci")
"""Where junit files and logs of the latest check are, below the root of the checkout."""
MAX_RERUN_TESTS = 2
"""More failures of `measured` tests than these are not the noise of a machine."""
POLL_SECS = 0.02
END_SECS = 30.0
"""For pytest to end its fixtures and print its failures after the limit."""
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of prctl(2)."""


@dataclass(frozen=True)
class Command:
    """A command of a stage; with `results`, it is pytest, and leaves what it found in that folder.

    `alone` runs a single test in the same way, given its id. `variables` are added to those of the environment.
    """

    words: tuple[str, ...]
    results: Path | None = None
    alone: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


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
    limit_secs : float, optional
        After which the stage hangs, and is ended; four times its budget by default.
    may_rerun : bool
        Whether up to two failed tests run once more, alone: only where tests measure time.
    may_be_empty : bool
        Whether pytest may find no test, or pass none.
    """

    name: str
    commands: tuple[Command, ...]
    budget_secs: float
    limit_secs: float | None = None
    may_rerun: bool = False
    may_be_empty: bool = False

    @property
    def end_secs(self) -> float:
        """After which the stage is ended."""
        return 4 * self.budget_secs if self.limit_secs is None else self.limit_secs


def adopt_orphans() -> None:
    """Adopt orphaned processes, so that they end with their stage."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def run(stage: Stage) -> Outcome:
    """Run a stage to its end, and again what may run again; print what its commands print."""
    print(f"\n=== {stage.name} ===", flush=True)
    outcome, failures = _run_once(stage)
    tests = tuple(failures)
    # what fails in a fixture has measured nothing
    may_rerun = stage.may_rerun and not outcome.problems and all(phases == {"call"} for phases in failures.values())
    if may_rerun and 0 < len(tests) <= MAX_RERUN_TESTS:
        print(f"\n=== {stage.name}: once more, alone, what failed at load {outcome.load:.1f} ===", flush=True)
        [command] = stage.commands
        again, _ = _run_once(replace(stage, commands=(_rerun_of(command, tests),), may_be_empty=False))
        missing = len(tests) - again.num_passed - len(again.failed_tests)
        problems = [*again.problems, *([f"{missing} of {len(tests)} tests did not run again"] if missing else [])]
        outcome = replace(
            again,
            secs=outcome.secs + again.secs,
            cpu_secs=outcome.cpu_secs + again.cpu_secs,
            num_passed=outcome.num_passed + again.num_passed,
            problems=tuple(problems),
            rerun=Rerun(tests, outcome.load, again.failed_tests, again.load),
        )
    return outcome


def _rerun_of(command: Command, tests: Sequence[str]) -> Command:
    assert command.results is not None
    results = command.results.with_name(f"{command.results.name}-again")
    return pytest_command(results, *tests, "-o", "faulthandler_timeout=0")


def pytest_command(results: Path, *arguments: str, alone: str = "") -> Command:
    """Return the command that runs pytest, and leaves in `results` which tests failed, and a junit file."""
    kept = (
        "-p",
        "tests.checks.failures",
        "-o",
        f"cache_dir={results / 'cache'}",
        f"--junit-xml={results / 'junit.xml'}",
    )
    prefix = "CI=1 " if "CI" in os.environ else ""
    return Command(
        (sys.executable, "-m", "pytest", *arguments, *kept), results, f"{prefix}.venv/bin/python -m pytest{alone}"
    )


def _run_once(stage: Stage) -> tuple[Outcome, dict[str, set[str]]]:
    """Run a stage; return what became of it, and in which phases each test failed."""
    began_at = time.monotonic()
    logs: dict[int, Path] = {}
    pids: dict[int, Command] = {}
    problems: list[str] = []
    for index, command in enumerate(stage.commands):
        if command.results is not None:
            shutil.rmtree(command.results, ignore_errors=True)
            command.results.mkdir(parents=True)
        if index > 0:
            logs[index] = RESULTS / f"{stage.name}-{index}.log"
            logs[index].parent.mkdir(parents=True, exist_ok=True)
        try:
            pids[_started(command, logs.get(index))] = command
        except OSError as error:
            problems.append(f"{command.words[0]} cannot be started: {error}")
    codes, cpu_secs = _reap(set(pids), began_at + stage.end_secs)
    load = os.getloadavg()[0]
    for pid, command in pids.items():
        code = codes[pid]
        if code is None:
            problems.append(f"not done within {stage.end_secs:g} s: {' '.join(command.words)}")
        elif reason := _unexplained(command, code, may_be_empty=stage.may_be_empty):
            problems.append(f"{reason}: {' '.join(command.words)}")
    for log in logs.values():
        if log.exists():
            print(log.read_text(errors="replace"), flush=True)
    for name in end_others():
        print(f"ended what {stage.name} left: {name}", flush=True)
    runs = [command for command in stage.commands if command.results is not None]
    failures: dict[str, set[str]] = {}
    for command in runs:
        assert command.results is not None
        failures |= read_failures(command.results)
    counts = [found for command in runs if command.results and (found := read_counts(command.results))]
    outcome = Outcome(
        stage.name,
        stage.budget_secs,
        time.monotonic() - began_at,
        cpu_secs,
        load,
        sum(found.passed for found in counts),
        tuple(failures),
        tuple(problems),
        next((command.alone for command in runs), ""),
    )
    return outcome, failures


def _started(command: Command, log: Path | None) -> int:
    """Start a command, which writes to the terminal or to `log`; return its process id.

    Not by `subprocess`, which may reap a process that it no longer knows before `_reap` sees it. SIGINT has its default
    action: a shell that starts this process in the background has it ignored, and pytest could not be interrupted.
    """
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = []
    if log is not None:
        actions.append((os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
    variables = os.environ | dict(command.variables)
    return os.posix_spawnp(command.words[0], command.words, variables, file_actions=actions, setsigdef=[signal.SIGINT])


def _reap(pids: set[int], deadline: float) -> tuple[dict[int, int | None], float]:
    """Wait for processes, and reap those that were adopted; return exit codes (None: ended here), and CPU seconds."""
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


def _unexplained(command: Command, code: int, *, may_be_empty: bool) -> str:
    """Return what the exit code of a command says beyond the tests that failed; empty if nothing."""
    if command.results is None:
        return f"exit code {code}" if code else ""
    counts, num_failed = read_counts(command.results), len(read_failures(command.results))
    if counts is None:
        return f"exit code {code}, before pytest came to its end"
    explained = {0: not num_failed, 1: num_failed > 0, 5: may_be_empty and not counts.tests}
    if not explained.get(code, False):
        return f"exit code {code}, with {num_failed} failures of {counts.tests} tests"
    return "" if may_be_empty or counts.passed or num_failed else "no test passed"


def end_others() -> list[str]:
    """Kill all processes below this one, also those that they start meanwhile; return their commands."""
    names: list[str] = []
    deadline = time.monotonic() + END_SECS
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < deadline:
        for process in left:
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.status() != psutil.STATUS_ZOMBIE:
                    names.append(" ".join(process.cmdline()) or process.name())
                process.kill()
        psutil.wait_procs(left, timeout=END_SECS)
    return names
