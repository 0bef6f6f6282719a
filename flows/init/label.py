"""Guesses whether the label is a class or a number."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from psflow.flows.init.columns import ColumnFacts
from psflow.flows.init.sample import RecordSample
from psflow.ps_runtime.columns.options import as_text
from psflow.ps_runtime.columns.reading import NUMBERS
from psflow.ps_runtime.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CLASSES = 1000
"""Limit of string classes; beyond it they are names or text."""
MAX_NUMBER_CLASSES = 20
RECORDS_EACH = 10
"""Mean number of records of a class; with fewer, integers are amounts rather than classes."""
MAX_SHOWN = 4
MOST_BLANKS = 0.1
"""Fraction of missing labels above which they are hardly missing by chance."""
RARE = 10
"""Records of a class up to which all may fall into one part of the input."""


@dataclass(frozen=True)
class LabelGuess:
    """Guessed kind of the label."""

    column: str
    is_classes: bool
    comment: str
    num_missing: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Any:
        """Value of the key ``label`` in a configuration."""
        return {"column": self.column, **self.options} if self.options else self.column


def guess_label(facts: ColumnFacts, values: pa.ChunkedArray, sample: RecordSample) -> LabelGuess:
    """Guess the kind of the label.

    Raises UsageError if no canned model learns it: missing in many records, constant, infinite, dates, arrays, or a
    distinct string in each record.
    """
    name = facts.name
    if fault := _fault(facts, sample):
        raise UsageError((f"the label {name!r} {fault}",))
    counts, is_text = _counted(values), facts.raw.type == "string"
    if is_text or facts.raw.type == "bool" or _are_classes(facts, counts):
        classes = _classes(facts, counts, sample)
        options = {} if is_text and classes == "auto" else {"classes": classes}
        return LabelGuess(name, True, _classes_comment(facts, counts), facts.num_missing, options)
    comment = f"a number, {facts.range}, {facts.num_distinct:,} distinct{facts.missing_text}"
    return LabelGuess(name, False, comment, facts.num_missing, {"normalize": "standard"})


def _fault(facts: ColumnFacts, sample: RecordSample) -> str:
    if facts.raw.type not in (*NUMBERS, "string", "bool"):
        return f"is {facts.raw.type}, expected numbers, strings or booleans"
    if not facts.num_distinct:
        return f"has only missing values{sample.seen}"
    if facts.num_distinct == 1:
        return f"is always {facts.low!r}{sample.seen}: expected at least two values to learn from"
    if facts.num_infinite:
        return f"is infinite in {facts.num_infinite:,} of {facts.num_records:,} records; correct them"
    if facts.num_missing > MOST_BLANKS * facts.num_records:
        words = ", ".join(map(repr, sample.missing_labels))
        of_words, advice = (
            (f" ({words})", f"; if {words} is a class, pass na_values=[] after the files") if words else ("", "")
        )
        return (
            f"is missing{of_words} in {facts.num_missing:,} of {facts.num_records:,} records, expected at most "
            f"{MOST_BLANKS:.0%}; remove these records from the files{advice}"
        )
    if facts.raw.type == "string" and facts.num_distinct > min(MAX_CLASSES, max(2, facts.num_records // 2)):
        found = f"{facts.num_distinct:,} distinct strings in {facts.num_records:,} records"
        return f"has {found}: expected classes{_hint(facts)}"
    return ""


def _hint(facts: ColumnFacts) -> str:
    """Return a hint on near-numeric strings after a semicolon; empty without any."""
    return f"; {facts.near_numeric}" if facts.near_numeric else ""


def _are_classes(facts: ColumnFacts, counts: Counter[Any]) -> bool:
    """Return whether labels are few integers, each in many records."""
    if facts.num_distinct > MAX_NUMBER_CLASSES or facts.num_records < RECORDS_EACH * facts.num_distinct:
        return False
    return all(float(value).is_integer() for value in counts)


def _counted(values: pa.ChunkedArray) -> Counter[Any]:
    """Count each label, without missing values."""
    from pyarrow import compute as pc

    present = values.filter(pc.invert(pc.is_null(values, nan_is_null=True)))
    return Counter({pair["values"]: pair["counts"] for pair in present.value_counts().to_pylist()})


def _classes(facts: ColumnFacts, counts: Counter[Any], sample: RecordSample) -> list[str | int] | Literal["auto"]:
    """Return all classes, in the order of ``auto``, if the training part may lack one."""
    if not sample.is_all or min(counts.values()) >= RARE:
        return "auto"
    words = map(as_text, sorted(counts))
    return [int(word) for word in words] if facts.raw.type in NUMBERS else list(words)


def _classes_comment(facts: ColumnFacts, counts: Counter[Any]) -> str:
    """Return the number of classes, and the most frequent ones with their shares."""
    frequent = sorted(counts, key=lambda value: (-counts[value], value))
    shown = ", ".join(f"{value} ({counts[value] / counts.total():.0%})" for value in frequent[:MAX_SHOWN])
    more = ", ..." if len(frequent) > MAX_SHOWN else ""
    return f"{facts.num_distinct} classes: {shown}{more}{facts.missing_text}{_hint(facts)}"
