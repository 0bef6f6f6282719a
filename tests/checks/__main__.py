"""Runs the checks of a tier and says what failed, and how to run it alone: ``make`` has a target for each tier."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.checks import tiers
from tests.checks.outcome import Outcome, seconds, summary
from tests.checks.records import append_record, stale_records
from tests.checks.stage import RESULTS, Stage, adopt_orphans, end_others, run

PIECES = range(1, tiers.NUM_PIECES + 1)


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.checks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("fast", "test", "ci", "seconds"):
        commands.add_parser(name)
    commands.add_parser("acceptance").add_argument("--piece", type=int, choices=PIECES)
    arguments = parser.parse_args()
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    try:
        return _run(arguments)
    finally:
        end_others()  # there are some after a signal


def _run(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "fast":
            return _ended(_run_all(tiers.fast()))
        case "test":
            return _ended(_run_all(tiers.test()))
        case "ci":
            exit_code = _ended(_run_all(tiers.ci()))
            for line in stale_records(PIECES):
                print(f"warning: {line}")
            return exit_code
        case "acceptance":
            return _ended(_run_pieces(PIECES if arguments.piece is None else [arguments.piece]))
        case "seconds":
            Path("tests", "seconds.json").write_text(json.dumps(seconds(RESULTS), indent=1) + "\n")
            return 0
        case other:
            raise AssertionError(other)


def _run_all(stages: Sequence[Stage]) -> list[Outcome]:
    return [run(stage) for stage in stages]


def _run_pieces(numbers: Sequence[int]) -> list[Outcome]:
    """Run pieces of acceptance, and leave a record of each."""
    outcomes = []
    for number in numbers:
        found = _run_all(tiers.piece(number))
        append_record(number, found)
        if (secs := sum(one.secs for one in found)) > tiers.PIECE_SECS:
            print(f"piece {number} took {secs:.0f} s, more than {tiers.PIECE_SECS:.0f}: move tests to another one")
        outcomes += found
    return outcomes


def _ended(outcomes: Sequence[Outcome]) -> int:
    print("\n" + summary(outcomes), flush=True)
    return 0 if all(one.is_green for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
