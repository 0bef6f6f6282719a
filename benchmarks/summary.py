"""Write results into the documentation: ``python -m benchmarks.summary runs/bench docs/benchmarks.md``.

Puts a table of each result between its marks on the page, and copies the results into the folder beside it, so that the
page can be checked against them. Benchmarks that were not run again keep their tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.__main__ import NAMES
from benchmarks.markdown import markdown_table, with_tables
from benchmarks.table import number
from psflow.ps_runtime.errors import UsageError

__all__ = ["main", "tables_of", "write_page"]

CLUSTER = "scaling_cluster"
USAGE = 2
SYSTEMS = ("psflow", "limit", "peer")
HEAD = ("case", "unit", *SYSTEMS, "to limit", "to peer", "CPU ms a step: psflow, limit, peer")
CLUSTER_HEAD = ("network", "workers", "ps", "steps/s", "held back by")
NOTHING = "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.summary", description=__doc__)
    parser.add_argument(
        "results", type=Path, nargs="?", default=Path("runs/bench"), help="folder with the results of benchmarks"
    )
    parser.add_argument("page", type=Path, nargs="?", default=Path("docs/benchmarks.md"), help="page to update")
    options = parser.parse_args(arguments)
    try:
        names = write_page(options.results, options.page)
    except UsageError as error:
        print(error, file=sys.stderr)
        return USAGE
    print(f"{options.page}: {', '.join(names)}")
    return 0


def write_page(results: Path, page: Path) -> list[str]:
    """Copy results beside a page and put their tables into it; return their names.

    Raises
    ------
    UsageError
        If there are no results.
    """
    found = [path for name in (*NAMES, CLUSTER) if (path := results / f"{name}.json").exists()]
    if not found:
        raise UsageError((f"{results} has no result of a benchmark; psflow bench NAME writes them there",))
    kept = page.with_suffix("")
    kept.mkdir(exist_ok=True)
    for path in found:
        shutil.copy(path, kept)
    if (results / f"{CLUSTER}.png").exists():
        shutil.copy(results / f"{CLUSTER}.png", kept)
    page.write_text(with_tables(page.read_text(), tables_of(kept)))
    return [path.stem for path in found]


def tables_of(directory: Path) -> dict[str, str]:
    """Return the table of each result that lies in a directory, by the name of the benchmark."""
    found = {}
    for path in sorted(directory.glob("*.json")):
        facts = json.loads(path.read_text())
        found[path.stem] = _clusters(facts, directory) if path.stem == CLUSTER else _table(facts)
    return found


def _table(facts: Mapping[str, Any]) -> str:
    return f"{_machine(facts['machine'])}\n\n{markdown_table(HEAD, [_row(row) for row in facts['rows']])}"


def _machine(machine: Mapping[str, Any]) -> str:
    peer = machine["peer"] or "no peer"
    return (
        f"{machine['cores']} cores, {machine['cpu']}, Python {machine['python']}, numpy {machine['numpy']}, "
        f"distributed {machine['distributed']}, {peer}; load at the start {machine['load']}."
    )


def _row(row: Mapping[str, Any]) -> list[str]:
    quartiles = row["quartiles"]
    values = [_spread(row[name], quartiles[name]) for name in SYSTEMS]
    ratios = [_spread(row[name], quartiles[name]) for name in ("ratio_limit", "ratio_peer")]
    cpu = [row["cpu_secs_per_step"][name] for name in SYSTEMS]
    shown = [NOTHING if secs is None else f"{1000 * secs:.3g}" for secs in cpu]
    return [row["case"], row["unit"], *values, *ratios, ", ".join(shown) if any(cpu) else NOTHING]


def _spread(median: float | None, quartiles: Sequence[float] | None) -> str:
    if median is None or quartiles is None:
        return NOTHING
    return f"**{number(median)}** {number(quartiles[0])} to {number(quartiles[1])}"


def _clusters(facts: Mapping[str, Any], directory: Path) -> str:
    picture = directory / f"{CLUSTER}.png"
    shown = f"![Steps per second over workers]({directory.name}/{picture.name})\n\n" if picture.exists() else ""
    rows = [
        [p["network"], number(p["workers"]), str(p["ps"]), number(p["steps_per_sec"]), p["bottleneck"]]
        for p in facts["points"]
    ]
    return shown + markdown_table(CLUSTER_HEAD, rows)


if __name__ == "__main__":
    sys.exit(main())
