"""Detects strings that spell numbers or dates in a form that is not parsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MOST = 0.9
"""Share of the strings of a column, plain numbers included, that must look numeric."""
MAX_SHOWN = 40
"""Characters of a string that are shown."""
MAX_STRINGS = 10_000
"""Strings of a column that are inspected."""
SIGN = r"[+\-\x{2212}]?"
SPACE = r"[ \x{a0}\x{202f}]"
"""A plain space, or one that does not break a line."""
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
    """The other strings that such a column may have."""


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
"""In the order in which they are tried: a string of a later spelling may match an earlier one, too."""


@dataclass
class _Count:
    num_spelled: int = 0
    num_fitting: int = 0
    first: str = ""


@dataclass
class NearNumericStrings:
    """Counts the spellings of the first `MAX_STRINGS` strings of a column, independent of its chunks."""

    _num_strings: int = 0
    _counts: dict[str, _Count] = field(default_factory=lambda: {spelling.what: _Count() for spelling in SPELLINGS})

    def update(self, strings: pa.Array) -> None:
        """Add the next strings; nulls are skipped."""
        from pyarrow import compute as pc

        if self._num_strings >= MAX_STRINGS:
            return
        strings = strings.drop_null().slice(0, MAX_STRINGS - self._num_strings)
        self._num_strings += len(strings)
        for spelling in SPELLINGS:
            count = self._counts[spelling.what]
            is_spelled = pc.match_substring_regex(strings, spelling.pattern)
            fits = is_spelled
            if spelling.beside is not None:
                fits = pc.or_(is_spelled, pc.match_substring_regex(strings, spelling.beside))
            num_spelled = pc.sum(is_spelled).as_py() or 0
            if num_spelled and not count.num_spelled:
                count.first = strings.filter(is_spelled)[0].as_py()[:MAX_SHOWN]
            count.num_spelled += num_spelled
            count.num_fitting += pc.sum(fits).as_py() or 0

    @property
    def sentence(self) -> str:
        """What the strings look like, and what to do; empty if they look like plain strings."""
        for spelling in SPELLINGS:
            count = self._counts[spelling.what]
            if count.num_spelled and count.num_fitting >= MOST * self._num_strings:
                return (
                    f"{count.num_spelled:,} of {self._num_strings:,} look like {count.first!r}, {spelling.what}: "
                    f"change them in the files, {spelling.advice}, else they stay text"
                )
        return ""


def near_numeric(strings: pa.Array) -> str:
    """Return the sentence of `NearNumericStrings` for the strings of a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> near_numeric(pa.array(["12%", "7 %"]))
    "2 of 2 look like '12%', percentages: change them in the files, without the sign, such as 12, else they stay text"
    """
    counted = NearNumericStrings()
    counted.update(strings)
    return counted.sentence
