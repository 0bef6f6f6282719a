"""``python -m benchmarks NAME``: run one benchmark, show a table, draw a plot, write JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from rich.console import Console

from benchmarks.machine import machine_facts
from benchmarks.plot import plot_rows
from benchmarks.rows import Row
from benchmarks.settings import Settings
from benchmarks.table import print_table
from psflow.ps_runtime.config.environment import prepare_environment
from psflow.ps_runtime.errors import PsflowError, UsageError

__all__ = ["NAMES", "main", "run"]

NAMES = (
    "mlp",
    "dense",
    "torch",
    "embedding",
    "clicks",
    "input",
    "predict",
    "checkpoint",
    "startup",
    "accuracy",
    "memory",
    "growth",
    "recovery",
    "scaling",
)
FAILED, USAGE = 1, 2
WIDTH = 120
"""Width of a table that is written to a file."""


class Bench(Protocol):
    """The interface of a benchmark's module."""

    CLAIM: str

    def measure(self, settings: Settings) -> list[Row]:
        """Run the benchmark; return a row for each case."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark that `arguments` name; return the exit code.

    The last line of stdout is the result as JSON with ``--json``; everything else goes to stderr.
    """
    options = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("benchmarks").setLevel(logging.INFO)
    prepare_environment()
    try:
        facts = run(options.name, _settings(options))
    except PsflowError as error:
        print(f"psflow bench {options.name}: {error}", file=sys.stderr)
        facts = {"error": {"type": type(error).__name__, "message": str(error)}}
        code = USAGE if isinstance(error, UsageError) else FAILED
    else:
        code = 0
    if options.json:
        print(json.dumps(facts), flush=True)
    return code


def run(name: str, settings: Settings) -> dict[str, Any]:
    """Run a benchmark, print its table on stderr, write plot and JSON; return the content of the JSON."""
    bench = cast(Bench, importlib.import_module(f"benchmarks.{name}"))
    machine = machine_facts()
    settings.output.mkdir(parents=True, exist_ok=True)
    rows = bench.measure(settings)
    if not rows:
        raise UsageError((f"bench {name} has no case that matches {', '.join(settings.patterns)}",))
    facts = {"bench": name, "machine": machine, "rows": [row.to_facts() for row in rows]}
    plot, result = settings.output / f"{name}.png", settings.output / f"{name}.json"
    plot_rows(f"psflow bench {name}", rows, plot)
    result.write_text(json.dumps(facts, indent=2) + "\n")
    console = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)
    print_table(console, bench.CLAIM, machine, rows)
    console.print(f"plot: {plot}, numbers: {result}", highlight=False, soft_wrap=True)
    return facts


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(options.output, options.pairs, options.starts, options.quick, tuple(options.case), options.rows)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--pairs", type=int, default=9, help="measurements of each system, in turn")
    parser.add_argument("--starts", type=int, default=2, help="number of fresh starts of the systems")
    parser.add_argument("--quick", action="store_true", help="one case, two short pairs, no peer")
    parser.add_argument(
        "--case", action="append", default=[], metavar="PATTERN", help="only cases that match this pattern"
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="records of the log of clicks; only for clicks")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/bench"), metavar="DIR", help="folder for plot and JSON"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON on the last line of stdout")
    return parser.parse_args(arguments)


def _end(number: int, frame: Any) -> NoReturn:
    """Stop at the first signal, and end the started processes before exiting."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    sys.exit(main(sys.argv[1:]))
