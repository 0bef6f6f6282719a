"""A guess of what the labels are: classes or a number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from psflow.flows.drafting.facts import ColumnFacts
from psflow.ps_runtime.columns.reading import NUMBERS
from psflow.ps_runtime.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LabelGuess", "guess_label"]

MAX_CLASSES = 1000
"""Of words; more of them are names, or text."""
MAX_NUMBER_CLASSES = 20
RECORDS_EACH = 10
"""Of a class, on average: with fewer, whole numbers are sizes rather than classes."""
MAX_SHOWN = 4


@dataclass(frozen=True)
class LabelGuess:
    """What the labels are.

    Parameters
    ----------
    column : str
        Their column.
    is_classes : bool
        Whether there are classes to tell from each other, else a number to predict.
    comment : str
        Why.
    num_blanks : int
        Records without a label.
    options : mapping
        The keys of the label beside its column.
    """

    column: str
    is_classes: bool
    comment: str
    num_blanks: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Any:
        """What a configuration says."""
        return {"column": self.column, **self.options} if self.options else self.column


def guess_label(facts: ColumnFacts, values: pa.ChunkedArray) -> LabelGuess:
    """Return what the labels are.

    Raises
    ------
    UsageError
        If they are nothing that a canned model learns: blank, all equal, dates, arrays, or a word for each record.
    """
    name = facts.name
    if fault := _fault(facts):
        raise UsageError((f"the label {name!r} {fault}",))
    if facts.raw.type == "string":
        return LabelGuess(name, True, _classes_comment(facts, values), facts.num_blanks)
    if facts.raw.type == "bool" or _are_classes(facts, values):
        return LabelGuess(name, True, _classes_comment(facts, values), facts.num_blanks, {"classes": "auto"})
    comment = f"a number, {facts.range}, {facts.num_distinct:,} different{facts.blanks}"
    return LabelGuess(name, False, comment, facts.num_blanks, {"normalize": "standard"})


def _fault(facts: ColumnFacts) -> str:
    if facts.raw.type not in (*NUMBERS, "string", "bool"):
        return f"is {facts.raw.type}, expected numbers, words or truths"
    if not facts.num_distinct:
        return "has nothing but blanks"
    if facts.num_distinct == 1:
        return f"is always {facts.low!r}: expected at least two values to learn from"
    if facts.raw.type == "string" and facts.num_distinct > min(MAX_CLASSES, max(2, facts.num_records // 2)):
        return f"has {facts.num_distinct:,} different words in {facts.num_records:,} records: expected classes"
    return ""


def _are_classes(facts: ColumnFacts, values: pa.ChunkedArray) -> bool:
    """Return whether numbers are few and whole, each of many records."""
    if facts.num_distinct > MAX_NUMBER_CLASSES or facts.num_records < RECORDS_EACH * facts.num_distinct:
        return False
    return all(float(value).is_integer() for value in values.unique().drop_null().to_pylist() if value == value)


def _classes_comment(facts: ColumnFacts, values: pa.ChunkedArray) -> str:
    """Return how many classes there are, and the most frequent ones with their shares."""
    num_present = facts.num_records - facts.num_blanks
    counts = {pair["values"]: pair["counts"] for pair in values.drop_null().value_counts().to_pylist()}
    frequent = sorted(counts, key=lambda value: (-counts[value], value))
    shown = ", ".join(f"{value} ({counts[value] / num_present:.0%})" for value in frequent[:MAX_SHOWN])
    more = ", ..." if len(frequent) > MAX_SHOWN else ""
    return f"{facts.num_distinct} classes: {shown}{more}{facts.blanks}"
