"""A result as a table on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.quartiles import Spread
from benchmarks.rows import Row

__all__ = ["number", "print_table"]

COLUMNS = ("psflow", "limit", "peer")


def print_table(console: Console, claim: str, machine: dict[str, Any], rows: Sequence[Row]) -> None:
    """Print claim, machine and rows; each number is a median, its quartiles below it."""
    table = Table(caption_justify="left", caption=_caption(machine), show_lines=True)
    table.add_column("case", no_wrap=True)
    table.add_column("unit")
    for name in (*COLUMNS, "to limit", "to peer", "CPU ms a step"):
        table.add_column(name, justify="right")
    for row in rows:
        cpu = "\n".join(f"{name} {1000 * c:.3g}" for name, c in row.cpu_secs_per_step.items() if c is not None)
        spreads = [getattr(row, name) for name in COLUMNS]
        ratios = [_text(row.ratio_limit, "x"), _text(row.ratio_peer, "x")]
        table.add_row(row.case, row.unit, *map(_text, spreads), *ratios, cpu)
    console.print(claim, highlight=False, soft_wrap=True)
    console.print(table)


def _text(spread: Spread | None, unit: str = "") -> str:
    return "-" if spread is None else f"{number(spread.median)}{unit}\n{number(spread.q1)} to {number(spread.q3)}"


def number(value: float) -> str:
    """Return a number as people read it.

    Examples
    --------
    >>> number(4123.6), number(0.70512)
    ('4,124', '0.705')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _caption(machine: dict[str, Any]) -> str:
    peer = machine["peer"] or "no peer here: make bench-peers installs it"
    return (
        f"{machine['cores']} cores, {machine['cpu']}, Python {machine['python']}, numpy {machine['numpy']}, {peer}. "
        "Medians of alternating pairs, quartiles below them; a ratio above 1 is in favour of psflow."
    )
