"""Guesses the use of a column other than the label from counts of its values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from psflow.ps_runtime.columns.near_numeric import near_numeric
from psflow.ps_runtime.columns.raw import TYPES, RawColumn
from psflow.ps_runtime.columns.statistics import MAX_STRING_LENGTH
from psflow.ps_runtime.columns.values import array_of, missing_rows

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ColumnFacts:
    """Counts of the values of a column."""

    raw: RawColumn
    num_records: int
    num_missing: int
    num_infinite: int
    num_distinct: int
    low: Any = None
    high: Any = None
    mean_length: float = 0.0
    max_length: int = 0
    near_numeric: str = ""

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
        """Whether all values are distinct."""
        return self.num_distinct == self.num_records

    @property
    def missing_text(self) -> str:
        """Number of missing values after a comma; empty if there are none."""
        return f", {self.num_missing:,} of {self.num_records:,} missing" if self.num_missing else ""

    @property
    def infinite(self) -> str:
        """Number of infinite values, as text."""
        return f"{self.num_infinite:,} of {self.num_records:,} infinite"

    @property
    def range(self) -> str:
        """Least and greatest value, as text."""
        low, high = (f"{value:g}" if isinstance(value, float) else f"{value}" for value in (self.low, self.high))
        return f"{low} to {high}"


def column_facts(raw: RawColumn, column: pa.ChunkedArray) -> ColumnFacts:
    """Count the values of a column."""
    from pyarrow import compute as pc

    values = column.combine_chunks()
    is_missing = missing_rows(values)
    num_missing = int(np.count_nonzero(is_missing))
    num_infinite = _num_infinite(values)
    present = values.filter(~is_missing)
    if raw.type not in TYPES or not len(present):
        return ColumnFacts(raw, len(values), num_missing, num_infinite, 0)
    bounds = pc.min_max(present).as_py()
    facts = ColumnFacts(
        raw,
        len(values),
        num_missing,
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
        near_numeric=near_numeric(present),
    )


def _num_infinite(values: pa.Array) -> int:
    import pyarrow as pa
    from pyarrow import compute as pc

    if pa.types.is_fixed_size_list(values.type):
        return int(np.isinf(array_of(values)).any(axis=1).sum())
    return pc.sum(pc.is_inf(values)).as_py() or 0 if pa.types.is_floating(values.type) else 0


def counted(count: int, noun: str) -> str:
    """Return a number and its noun.

    Examples
    --------
    >>> counted(1, "value"), counted(1200, "value")
    ('1 value', '1,200 values')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


KEY_NAME = re.compile(r"(?:.*[^a-z])?(?:id|key|uuid|guid)", re.IGNORECASE)
"""Matches ``id``, ``customer_id``, ``order-key``, not ``paid``."""
CAMEL_KEY_NAME = re.compile(r".*[a-z](?:Id|ID|Key)")
ENOUGH_RECORDS = 20
"""Minimum of records for distinct values to be no coincidence."""
MAX_KEY_LENGTH = 64
LONG_TEXT = 60
"""Mean number of characters above which values are text."""
MISSING = "(missing)"
"""Category of missing values."""
EMBEDDING = 8


class Use(Enum):
    """Use of a column."""

    FEATURE = "feature"
    KEY = "key"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class ColumnGuess:
    """Guessed use of a column, with its reason."""

    name: str
    use: Use
    comment: str
    options: dict[str, Any] = field(default_factory=dict)


def guess_column(facts: ColumnFacts, *, can_flag: bool, is_deep: bool, max_words: int, seen: str) -> ColumnGuess:
    """Guess the use of a column."""
    guess = _guess_of_values(facts, can_flag=can_flag, is_deep=is_deep, max_words=max_words, seen=seen)
    return replace(guess, comment=f"{guess.comment}; {facts.near_numeric}") if facts.near_numeric else guess


def _guess_of_values(facts: ColumnFacts, *, can_flag: bool, is_deep: bool, max_words: int, seen: str) -> ColumnGuess:
    name = facts.name
    if facts.is_array:
        return _arrays(facts)
    if not facts.num_distinct:
        return ColumnGuess(name, Use.LEFT_OUT, f"only missing values{seen}: left out")
    if facts.num_distinct == 1 and not facts.num_missing:
        return ColumnGuess(name, Use.LEFT_OUT, f"always {facts.low}{seen}: left out")
    if facts.num_infinite:
        return ColumnGuess(name, Use.LEFT_OUT, f"{facts.infinite}: left out, as models cannot learn from infinity")
    if _is_key(facts):
        return ColumnGuess(name, Use.KEY, "all distinct: identifies a record")
    match facts.raw.type:
        case "string":
            return _words(facts, {}, max_words, is_deep=is_deep)
        case "bool":
            return ColumnGuess(name, Use.FEATURE, f"true or false{facts.missing_text}", _filled(facts, {}))
        case "date" | "timestamp":
            comment = f"dates, {facts.range}, as days since 1970{facts.missing_text}"
            return ColumnGuess(name, Use.FEATURE, comment, _number(facts, can_flag=can_flag))
        case "int64" if _is_key_name(name):
            return _words(facts, {}, max_words, is_deep=is_deep)
    comment = f"{facts.range}{facts.missing_text}"
    return ColumnGuess(name, Use.FEATURE, comment, _number(facts, can_flag=can_flag))


def _arrays(facts: ColumnFacts) -> ColumnGuess:
    what = f"arrays, {facts.raw.type}"
    if facts.num_missing:
        return ColumnGuess(
            facts.name, Use.LEFT_OUT, f"{what}{facts.missing_text}: left out, as arrays cannot be imputed"
        )
    if facts.num_infinite:
        return ColumnGuess(facts.name, Use.LEFT_OUT, f"{what}, {facts.infinite}: left out")
    return ColumnGuess(facts.name, Use.FEATURE, what)


def _is_key_name(name: str) -> bool:
    return bool(KEY_NAME.fullmatch(name) or CAMEL_KEY_NAME.fullmatch(name))


def _is_key(facts: ColumnFacts) -> bool:
    """Return whether the values are distinct identifiers of records rather than measurements."""
    if not facts.all_differ:
        return False
    if _is_key_name(facts.name):
        return facts.raw.type in ("string", "int64")
    if facts.num_records < ENOUGH_RECORDS:
        return False
    match facts.raw.type:
        case "string":
            return facts.max_length <= MAX_KEY_LENGTH and facts.mean_length < LONG_TEXT
        case "int64":
            return bool(facts.high - facts.low + 1 == facts.num_records)  # consecutive numbers
        case _:
            return False


def _number(facts: ColumnFacts, *, can_flag: bool) -> dict[str, Any]:
    flag = {"indicator": True} if can_flag else {}
    filled = {"impute": "median", **flag} if facts.num_missing else {}
    return {**filled, "normalize": "standard"}


def _filled(facts: ColumnFacts, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of strings; missing values become a category, as they may carry information."""
    return {**options, "impute": MISSING} if facts.num_missing else options


def _words(facts: ColumnFacts, options: dict[str, Any], max_words: int, *, is_deep: bool) -> ColumnGuess:
    name, what = facts.name, f"{counted(facts.num_distinct, 'distinct value')}{facts.missing_text}"
    if facts.mean_length >= LONG_TEXT:
        return ColumnGuess(name, Use.LEFT_OUT, f"{what}, {facts.mean_length:.0f} characters on average: text, left out")
    if facts.max_length > MAX_STRING_LENGTH:
        return ColumnGuess(name, Use.LEFT_OUT, f"{what}, one of {facts.max_length:,} characters: left out")
    if facts.num_records >= ENOUGH_RECORDS and facts.num_distinct > (facts.num_records - facts.num_missing) / 2:
        return ColumnGuess(name, Use.LEFT_OUT, f"{what}, most of them in one record only: left out")
    if facts.raw.type == "int64":
        options, what = {**options, "vocabulary": "auto"}, f"{what}, as its name suggests that numbers are ids"
    if facts.num_distinct <= max_words:
        return ColumnGuess(name, Use.FEATURE, what, _filled(facts, options))
    options.pop("vocabulary", None)
    options["hash_buckets"] = 1 << (2 * facts.num_distinct).bit_length()
    if is_deep:
        options["embedding"] = EMBEDDING
    return ColumnGuess(name, Use.FEATURE, f"{what}: hashed because of their number", _filled(facts, options))
