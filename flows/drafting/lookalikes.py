"""Words that people mean as numbers or dates, in a spelling that is not read as such."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["lookalike"]

MOST = 0.9
"""Of the words of a column, with plain numbers among them: what has more others is no column of numbers."""
MAX_SHOWN = 40
"""Characters of a word."""
PLAIN_NUMBER = r"^[+-]?[0-9]*\.?[0-9]+$"
AMOUNT = r"[0-9][0-9.,']*"
CURRENCY = r"(?:\p{Sc}|AUD|BRL|CAD|CHF|CNY|DKK|EUR|GBP|INR|JPY|NOK|PLN|SEK|USD)"
DATE = (
    r"(?:[0-9]{1,2}/[0-9]{1,2}/(?:[0-9]{2}|[0-9]{4})|[0-9]{1,2}[-.][0-9]{1,2}[-.][0-9]{4}"
    r"|[0-9]{4}[/.][0-9]{1,2}[/.][0-9]{1,2})"
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
    _Spelling("percentages", rf"^[+-]?{AMOUNT} ?%$", "without the sign, such as 12"),
    _Spelling(
        "amounts of money",
        rf"^[+-]?(?:{CURRENCY} ?[+-]?{AMOUNT}|{AMOUNT} ?{CURRENCY})$",
        "without the currency and with a decimal point, such as 1234.5",
    ),
    _Spelling(
        "numbers with commas between thousands, or decimal commas",
        r"^[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?$",
        "with a decimal point at most, such as 1234.5",
    ),
    _Spelling(
        "numbers with a decimal comma",
        r"^[+-]?(?:[0-9]+|[0-9]{1,3}(?:\.[0-9]{3})+)?,[0-9]+$",
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


def lookalike(words: pa.Array) -> str:
    """Return what the words of a column look like, and what to do; empty if they look like words.

    Parameters
    ----------
    words : pyarrow.Array
        Text, without nulls.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lookalike(pa.array(["12%", "7 %"]))
    "2 of 2 look like '12%', percentages: change them in the files, without the sign, such as 12, else they are words"
    """
    from pyarrow import compute as pc

    for spelling in SPELLINGS:
        is_spelled = pc.match_substring_regex(words, spelling.pattern)
        fits = is_spelled
        if spelling.beside is not None:
            fits = pc.or_(is_spelled, pc.match_substring_regex(words, spelling.beside))
        num_spelled, num_fitting = pc.sum(is_spelled).as_py() or 0, pc.sum(fits).as_py() or 0
        if num_spelled and num_fitting >= MOST * len(words):
            first = words.filter(is_spelled)[0].as_py()[:MAX_SHOWN]
            return (
                f"{num_spelled:,} of {len(words):,} look like {first!r}, {spelling.what}: change them in the files, "
                f"{spelling.advice}, else they are words"
            )
    return ""
