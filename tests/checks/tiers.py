"""The stages of each tier of checks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from tests.checks.stage import RESULTS, Command, Stage, pytest_command

__all__ = ["NUM_PIECES", "PIECE_SECS", "ci", "fast", "piece", "test"]

NUM_PIECES = 11
PIECE_SECS = 600.0
CHAOS_SEED, NUM_TRIALS = 96, 24
BIN = Path(sys.executable).parent
NUM_PROCESSES = int(os.environ.get("TEST_PROCESSES", "2"))
SPREAD = ("--dist", "loadscope", "--no-loadscope-reorder")
"""A module is of one process, so that its fixtures are made once; tests/conftest.py says which modules come first."""
WITHOUT_LIMIT = ("-o", "faulthandler_timeout=0")
"""Some acceptance tests have a limit of an hour, by their mark; and to arm it takes some tests longer than to run."""
MEMORY, MIN_FREE_BYTES = Path("/dev/shm"), 2 << 30


def fast() -> list[Stage]:
    """Return what starts no process, with a fifth of the examples that ``make test`` draws, and what takes seconds."""
    selection = ("-n", str(NUM_PROCESSES), *SPREAD, "-m", "not browser and not process", "--hypothesis-profile=fast")
    return [_lint(), Stage("fast", (_in_memory("fast", *selection, *WITHOUT_LIMIT),), 118)]


def _in_memory(name: str, *arguments: str) -> Command:
    """Return the command whose files are in memory, where that has room: an eighth of the time they go to a disk."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MIN_FREE_BYTES
    variables = {"PYTEST_DEBUG_TEMPROOT": str(MEMORY)} if has_room else {}
    return replace(_pytest(name, *arguments), variables=variables)


def test() -> list[Stage]:
    """Return the test suite without what takes minutes; a third of its time it waits for processes."""
    return [Stage("test", (_in_memory("test", "-n", str(NUM_PROCESSES + 1), *SPREAD),), 300)]


def ci() -> list[Stage]:
    """Return the checks that each change must pass."""
    doctests = ("--doctest-modules", "psflow", "benchmarks", "--ignore", "benchmarks/peers", *_without_torch())
    trials = ("--seed", str(CHAOS_SEED), "--trials", str(NUM_TRIALS))
    return [
        _lint(),
        Stage(
            "types and doctests",
            (
                _pytest("doctests", *doctests, alone=" --doctest-modules psflow benchmarks -k"),
                Command((str(BIN / "mypy"),)),
            ),
            60,
        ),
        *test(),
        *_acceptance("ci", "ci", 540, 180),
        *_browser(),
        Stage("chaos", (Command((sys.executable, "-m", "tests.chaos", *trials)),), 200),
        Stage("ledger", (Command((sys.executable, "-m", "benchmarks.ledger")),), 25),  # last, so that warnings are seen
    ]


def _without_torch() -> list[str]:
    """Return the options that leave out modules that import torch; none, where it is installed."""
    if importlib.util.find_spec("torch"):
        return []
    print("torch is not installed: the tests of torch modules are left out; make torch installs it")
    return [f"--ignore-glob=psflow/ps_runtime/{name}" for name in ("torch_modules/*", "estimator/torch_estimator.py")]


def _browser() -> list[Stage]:
    """Return the pages in Chromium; nothing, in a line, where that is not installed."""
    if not all(map(shutil.which, ("chromium", "chromedriver"))):
        print("Chromium is not installed: the tests of pages in a browser are left out")
        return []
    return [
        Stage(
            "browser", (_pytest("browser", "-m", "browser", "tests/browser", alone=" -m browser"),), 90, limit_secs=600
        )
    ]


def piece(number: int) -> list[Stage]:
    """Return a piece of the tests that take minutes."""
    stages = _acceptance(f"piece(number={number})", f"piece {number}", PIECE_SECS, PIECE_SECS)
    return [replace(stage, limit_secs=4 * PIECE_SECS, may_be_empty=True) for stage in stages]


def _lint() -> Stage:
    commands = [("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports", "--no-logo", "--no-cache")]
    return Stage("lint", tuple(Command((str(BIN / name), *words)) for name, *words in commands), 20)


def _acceptance(selection: str, name: str, budget_secs: float, measured_budget_secs: float) -> list[Stage]:
    """Return the stages of some acceptance tests: those that mostly wait side by side, then the measured ones alone."""
    beside = (f"{selection} and not measured", "-n", str(NUM_PROCESSES + 1), *SPREAD)
    alone = (f"{selection} and measured",)
    return [
        Stage(f"acceptance {name}", (_acceptance_tests(f"acceptance-{name}", *beside),), budget_secs),
        Stage(
            f"measured {name}", (_acceptance_tests(f"measured-{name}", *alone),), measured_budget_secs, may_rerun=True
        ),
    ]


def _acceptance_tests(name: str, selection: str, *arguments: str) -> Command:
    return _pytest(
        name,
        "tests/acceptance",
        "tests/hosts",
        "-m",
        selection,
        *arguments,
        *WITHOUT_LIMIT,
        alone=" " + " ".join(WITHOUT_LIMIT),
    )


def _pytest(name: str, *arguments: str, alone: str = "") -> Command:
    return pytest_command(RESULTS / name.replace(" ", "-"), *arguments, alone=alone)
