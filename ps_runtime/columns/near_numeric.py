"""Words that people mean as numbers or dates, in a spelling that is not read as such."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MOST = 0.9
"""Of the words of a column, with plain numbers among them: what has more others is no column of numbers."""
MAX_SHOWN = 40
"""Characters of a word."""
MAX_WORDS = 10_000
"""Of a column that are looked at."""
SIGN = r"[+\-\x{2212}]?"
SPACE = r"[ \x{a0}\x{202f}]"
"""A plain one, or one that does not break a line."""
PLAIN_NUMBER = r"^[+-]?[0-9]*\.?[0-9]+$"
AMOUNT = r"[0-9][0-9.,']*"
CURRENCY = r"(?:\p{Sc}|AUD|BRL|CAD|CHF|CNY|DKK|EUR|GBP|INR|JPY|NOK|PLN|SEK|USD)"
MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
DATE = (
    r"(?:[0-9]{1,2}/[0-9]{1,2}/(?:[0-9]{2}|[0-9]{4})|[0-9]{1,2}[-.][0-9]{1,2}[-.][0-9]{4}"
    r"|[0-9]{4}[/.][0-9]{1,2}[/.][0-9]{1,2}"
    rf"|[0-9]{{1,2}}[- ]{MONTH}[- ][0-9]{{4}}|{MONTH} [0-9]{{1,2}},? [0-9]{{4}})"
)
PLAIN_DATE = rf"^{DATE}$"


@dataclass(frozen=True)
class _Spelling:
    what: str
    pattern: str
    advice: str
    beside: str | None = PLAIN_NUMBER
    """What other words of such a column look like."""


SPELLINGS = (
    _Spelling(
        "numbers with the minus sign U+2212",
        r"^\x{2212}[0-9]*\.?[0-9]+$",
        "with a hyphen as their sign, such as -5",
    ),
    _Spelling("percentages", rf"^{SIGN}{AMOUNT}{SPACE}?%$", "without the sign, such as 12"),
    _Spelling(
        "amounts of money",
        rf"^{SIGN}(?:{CURRENCY}{SPACE}?{SIGN}{AMOUNT}|{AMOUNT}{SPACE}?{CURRENCY})$",
        "without the currency and with a decimal point, such as 1234.5",
    ),
    _Spelling(
        "numbers with commas between thousands, or decimal commas",
        rf"^{SIGN}[0-9]{{1,3}}(?:,[0-9]{{3}})+(?:\.[0-9]+)?$",
        "with a decimal point at most, such as 1234.5",
    ),
    _Spelling(
        "numbers with spaces or apostrophes between thousands",
        rf"^{SIGN}[0-9]{{1,3}}(?:(?:{SPACE}|['\x{{2019}}])[0-9]{{3}})+(?:[.,][0-9]+)?$",
        "with a decimal point at most, such as 1234.5",
    ),
    _Spelling(
        "numbers with a decimal comma",
        rf"^{SIGN}(?:[0-9]+|[0-9]{{1,3}}(?:\.[0-9]{{3}})+)?,[0-9]+$",
        "with a decimal point, such as 1.5",
    ),
    _Spelling(
        "dates with a time of day",
        rf"^{DATE}[ T][0-9]{{1,2}}:[0-9]{{2}}.*$",
        "as YYYY-MM-DD HH:MM:SS, such as 2026-01-31 23:59:00",
        beside=PLAIN_DATE,
    ),
    _Spelling("dates", PLAIN_DATE, "as YYYY-MM-DD, such as 2026-01-31", beside=None),
)
"""In the order in which they are tried: what a later one means, an earlier one may hold, too."""


@dataclass
class _Count:
    num_spelled: int = 0
    num_fitting: int = 0
    first: str = ""


@dataclass
class NearNumericStrings:
    """Counts the spellings of the first `MAX_WORDS` words of a column, however they are cut into chunks."""

    _num_words: int = 0
    _counts: dict[str, _Count] = field(default_factory=lambda: {spelling.what: _Count() for spelling in SPELLINGS})

    def update(self, words: pa.Array) -> None:
        """Take in the next words, text; nulls are passed over."""
        from pyarrow import compute as pc

        if self._num_words >= MAX_WORDS:
            return
        words = words.drop_null().slice(0, MAX_WORDS - self._num_words)
        self._num_words += len(words)
        for spelling in SPELLINGS:
            count = self._counts[spelling.what]
            is_spelled = pc.match_substring_regex(words, spelling.pattern)
            fits = is_spelled
            if spelling.beside is not None:
                fits = pc.or_(is_spelled, pc.match_substring_regex(words, spelling.beside))
            num_spelled = pc.sum(is_spelled).as_py() or 0
            if num_spelled and not count.num_spelled:
                count.first = words.filter(is_spelled)[0].as_py()[:MAX_SHOWN]
            count.num_spelled += num_spelled
            count.num_fitting += pc.sum(fits).as_py() or 0

    @property
    def sentence(self) -> str:
        """What the words look like, and what to do; empty if they look like words."""
        for spelling in SPELLINGS:
            count = self._counts[spelling.what]
            if count.num_spelled and count.num_fitting >= MOST * self._num_words:
                return (
                    f"{count.num_spelled:,} of {self._num_words:,} look like {count.first!r}, {spelling.what}: change "
                    f"them in the files, {spelling.advice}, else they are words"
                )
        return ""


def near_numeric(words: pa.Array) -> str:
    """Return the sentence of `NearNumericStrings` on the words of a column, text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lookalike(pa.array(["12%", "7 %"]))
    "2 of 2 look like '12%', percentages: change them in the files, without the sign, such as 12, else they are words"
    """
    counted = NearNumericStrings()
    counted.update(words)
    return counted.sentence
