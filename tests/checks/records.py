"""The record of the pieces of acceptance: which commit each was last tried on, and how that ended."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.checks.outcome import Outcome

__all__ = ["RECORDS", "append_record", "stale_records"]

RECORDS = Path("docs", "acceptance.md")
MAX_COMMITS = 50
NUM_CELLS = 9
"""Of a line of the record, with what is before its first bar and after its last one."""


def append_record(piece: int, outcomes: Sequence[Outcome], path: Path = RECORDS) -> None:
    """Add a line on a piece that was just run."""
    now = datetime.now(UTC)
    secs = sum(one.secs for one in outcomes)
    load = max(one.load for one in outcomes)
    passed = sum(one.num_passed for one in outcomes)
    failed = sum(len(one.failed_tests) + len(one.problems) for one in outcomes)
    commit = _git("rev-parse", "--short=10", "HEAD") + "+" * bool(_git("status", "--porcelain", "-uno", "--", ":!docs"))
    with path.open("a") as file:
        file.write(f"| {piece} | {commit} | {now:%Y-%m-%d %H:%M} | {secs:.0f} | {load:.1f} | {passed} | {failed} |\n")


def stale_records(pieces: Iterable[int], path: Path = RECORDS) -> list[str]:
    """Return a line for each piece whose last record is missing, red, or older than 50 commits."""
    records = {record.piece: record for record in _records(path)}
    lines = []
    for piece in pieces:
        again = f"run make acceptance PIECE={piece}"
        if (last := records.get(piece)) is None:
            lines.append(f"piece {piece} of acceptance has no record; {again}")
        elif last.failed or not last.passed:
            lines.append(f"piece {piece} of acceptance: {last.passed} passed and {last.failed} failed last; {again}")
        elif (age := _age(last.commit)) is None:
            lines.append(f"piece {piece} of acceptance was last run on {last.commit}, which is not in this history")
        elif age > MAX_COMMITS:
            lines.append(f"piece {piece} of acceptance was last run {age} commits ago; {again}")
    return lines


class _Record(NamedTuple):
    piece: int
    commit: str
    passed: int
    failed: int


def _records(path: Path) -> Iterable[_Record]:
    """Yield the records, the oldest first."""
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == NUM_CELLS and cells[1].isdecimal():
            yield _Record(int(cells[1]), cells[2].removesuffix("+"), int(cells[6]), int(cells[7]))


def _age(commit: str) -> int | None:
    """Return how many commits have come after one, None if it is not an ancestor of the current one."""
    is_known = subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True)
    return None if is_known.returncode else int(_git("rev-list", "--count", f"{commit}..HEAD"))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
