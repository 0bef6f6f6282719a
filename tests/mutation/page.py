"""The tables of ``docs/mutation.md``: how many mutants each room killed, and why each of the others survives."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from tests.mutation.outcomes import Mutant, Outcome

FIGURES = "| room | mutants | killed | of these by the timeout |\n|---|---|---|---|\n"
SURVIVORS = "| room | module | line | mutant | why no test fails |\n|---|---|---|---|---|\n"
UNEXPLAINED = "not explained yet"


def updated(text: str, outcomes: Sequence[Outcome], order: Sequence[str]) -> str:
    """Return the page with the `outcomes`; the rows of rooms that were not tried stay, and so do explanations.

    Parameters
    ----------
    text : str
        The page.
    outcomes : sequence of Outcome
    order : sequence of str
        The names of all rooms.
    """
    tried = Counter(outcome.room for outcome in outcomes)
    killed = Counter(outcome.room for outcome in outcomes if outcome.is_killed)
    figures = {row[0]: row for row in _rows(text, FIGURES)}
    late = Counter(outcome.room for outcome in outcomes if outcome.has_timed_out)
    figures |= {room: [room, str(tried[room]), str(killed[room]), str(late[room])] for room in tried}
    former = _rows(text, SURVIVORS)
    reasons = {tuple(row[1:4]): row[4] for row in former}
    survivors = [row for row in former if row[0] not in tried]
    for outcome in outcomes:
        if not outcome.is_killed:
            cells = _cells(outcome.mutant)
            survivors.append([outcome.room, *cells, reasons.get(cells, UNEXPLAINED)])
    survivors.sort(key=lambda row: (order.index(row[0]), row[1:]))
    text = _with_rows(text, FIGURES, [figures[room] for room in order if room in figures])
    return _with_rows(text, SURVIVORS, survivors)


def unexplained(text: str) -> list[str]:
    """Return the survivors of which the page does not say why no test fails."""
    return [" | ".join(row[1:4]) for row in _rows(text, SURVIVORS) if row[4] == UNEXPLAINED]


def untried(text: str, order: Sequence[str]) -> list[str]:
    """Return the rooms of which the page has no figures."""
    known = {row[0] for row in _rows(text, FIGURES)}
    return [room for room in order if room not in known]


def killed_percent(text: str) -> float:
    """Return how many of all mutants on the page were killed, in percent."""
    rows = _rows(text, FIGURES)
    return 100 * sum(int(row[2]) for row in rows) / sum(int(row[1]) for row in rows)


def _cells(mutant: Mutant) -> tuple[str, str, str]:
    was, becomes = (f"``{line}``".replace("|", "\\|") if line else "(removed)" for line in (mutant.was, mutant.becomes))
    return (mutant.module, was, becomes)


def _rows(text: str, head: str) -> list[list[str]]:
    """Return the cells of the table with `head`."""
    _, table, _ = _parts(text, head)
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in table]


def _with_rows(text: str, head: str, rows: Sequence[Sequence[str]]) -> str:
    before, _, after = _parts(text, head)
    return before + head + "".join(f"| {' | '.join(row)} |\n" for row in rows) + after


def _parts(text: str, head: str) -> tuple[str, list[str], str]:
    """Return what stands before `head`, the rows of its table, and what comes after them."""
    before, found, rest = text.partition(head)
    if not found:
        raise ValueError(f"docs/mutation.md has no table that begins with {head.splitlines()[0]!r}; add it again")
    lines = rest.splitlines(keepends=True)
    num_rows = len(list(itertools.takewhile(lambda line: line.startswith("|"), lines)))
    return before, lines[:num_rows], "".join(lines[num_rows:])
