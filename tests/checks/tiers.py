"""The stages of each tier of checks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.checks.stage import RESULTS, Command, Stage, pytest_command

__all__ = ["NUM_PIECES", "ci", "fast", "piece", "test"]

NUM_PIECES = 8
PIECE_SECS = 600.0
CHAOS_SEED, NUM_TRIALS = 96, 24
BIN = Path(sys.executable).parent
CORES = int(os.environ.get("TEST_PROCESSES", "2"))
SPREAD = ("--dist", "loadscope", "--no-loadscope-reorder")
"""A module is of one process, so that its fixtures are made once; tests/conftest.py says which modules come first."""
WITHOUT_LIMIT = ("-o", "faulthandler_timeout=0")
"""Some of these tests have a limit of an hour, by their mark."""


def fast() -> list[Stage]:
    """Return what starts no process, and the checks that take seconds."""
    return [
        _lint(),
        Stage("fast", (_pytest("fast", "-n", str(CORES), *SPREAD, "-m", "not browser and not process"),), 100),
    ]


def test() -> list[Stage]:
    """Return the test suite without what takes minutes; a third of its time it waits for processes."""
    return [Stage("test", (_pytest("test", "-n", str(CORES + 1), *SPREAD),), 300)]


def ci() -> list[Stage]:
    """Return what decides over a change."""
    doctests = ("--doctest-modules", "psflow", "benchmarks", "--ignore", "benchmarks/peers")
    trials = ("--seed", str(CHAOS_SEED), "--trials", str(NUM_TRIALS))
    return [
        _lint(),
        Stage("types and doctests", (_pytest("doctests", *doctests), Command((str(BIN / "mypy"),))), 60),
        *test(),
        *_acceptance("ci", "ci", 540, 180),
        Stage("browser", (_pytest("browser", "-m", "browser", "tests/browser"),), 90),
        Stage("chaos", (Command((sys.executable, "-m", "tests.chaos", *trials)),), 200),
    ]


def piece(number: int) -> list[Stage]:
    """Return a piece of the tests that take minutes."""
    return _acceptance(f"piece(number={number})", f"piece {number}", PIECE_SECS / 2, PIECE_SECS / 2)


def _lint() -> Stage:
    commands = [("ruff", "format", "--check", "."), ("ruff", "check", "."), ("lint-imports", "--no-logo", "--no-cache")]
    return Stage("lint", tuple(Command((str(BIN / name), *words)) for name, *words in commands), 20)


def _acceptance(selection: str, name: str, budget_secs: float, measured_budget_secs: float) -> list[Stage]:
    """Return the stages of some acceptance tests: those that mostly wait side by side, then the measured ones alone."""
    beside = ("tests/acceptance", "-m", f"{selection} and not measured", "-n", str(2 * CORES), *SPREAD, *WITHOUT_LIMIT)
    alone = ("tests/acceptance", "-m", f"{selection} and measured", *WITHOUT_LIMIT)
    return [
        Stage(f"acceptance {name}", (_pytest(f"acceptance-{name}", *beside),), budget_secs, 2400, may_be_empty=True),
        Stage(
            f"measured {name}",
            (_pytest(f"measured-{name}", *alone),),
            measured_budget_secs,
            2400,
            may_rerun=True,
            may_be_empty=True,
        ),
    ]


def _pytest(name: str, *arguments: str) -> Command:
    return pytest_command(RESULTS / name.replace(" ", "-"), *arguments)
