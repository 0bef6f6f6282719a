"""What the values of one column are: counted once, for all guesses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from psflow.ps_runtime.columns.lookalikes import lookalike
from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.columns.values import array_of, blank_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnFacts", "column_facts", "counted"]


@dataclass(frozen=True)
class ColumnFacts:
    """What was counted."""

    raw: RawColumn
    num_records: int
    num_blanks: int
    num_infinite: int
    num_distinct: int
    low: Any = None
    high: Any = None
    mean_length: float = 0.0
    max_length: int = 0
    lookalike: str = ""

    @property
    def name(self) -> str:
        """The name of the column."""
        return self.raw.name

    @property
    def is_array(self) -> bool:
        """Whether each value is an array."""
        return self.raw.type not in TYPES

    @property
    def all_differ(self) -> bool:
        """Whether each record has a value of its own."""
        return self.num_distinct == self.num_records

    @property
    def blanks(self) -> str:
        """How many blanks there are, behind a comma; empty if there is none."""
        return f", {self.num_blanks:,} of {self.num_records:,} blank" if self.num_blanks else ""

    @property
    def infinite(self) -> str:
        """How many values are infinite."""
        return f"{self.num_infinite:,} of {self.num_records:,} infinite"

    @property
    def range(self) -> str:
        """From the least to the greatest value."""
        low, high = (f"{value:g}" if isinstance(value, float) else f"{value}" for value in (self.low, self.high))
        return f"{low} to {high}"


def column_facts(raw: RawColumn, column: pa.ChunkedArray) -> ColumnFacts:
    """Count the values of a column."""
    from pyarrow import compute as pc

    values = column.combine_chunks()
    blank = blank_rows(values)
    num_blanks = int(np.count_nonzero(blank))
    num_infinite = _num_infinite(values)
    present = values.filter(~blank)
    if raw.type not in TYPES or not len(present):
        return ColumnFacts(raw, len(values), num_blanks, num_infinite, 0)
    bounds = pc.min_max(present).as_py()
    facts = ColumnFacts(
        raw,
        len(values),
        num_blanks,
        num_infinite,
        pc.count_distinct(present).as_py(),
        bounds["min"],
        bounds["max"],
    )
    if raw.type != "string":
        return facts
    lengths = pc.utf8_length(present)
    return replace(
        facts,
        mean_length=pc.mean(lengths).as_py(),
        max_length=pc.max(lengths).as_py(),
        lookalike=lookalike(present),
    )


def _num_infinite(values: pa.Array) -> int:
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_fixed_size_list(values.type):
        return int(np.isinf(array_of(values)).any(axis=1).sum())
    return pc.sum(pc.is_inf(values)).as_py() or 0 if pa.types.is_floating(values.type) else 0


def counted(count: int, noun: str) -> str:
    """Return a number and what it counts.

    Examples
    --------
    >>> counted(1, "word"), counted(1200, "word")
    ('1 word', '1,200 words')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
