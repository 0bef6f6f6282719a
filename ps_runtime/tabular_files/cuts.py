"""Finds the ends of records of delimited text, line ends outside quotes, exactly as pyarrow parses them.

A quote opens a quoted cell only as the first byte of a cell. Inside, two quotes are one, and a single one closes. After
that, and in a cell that does not begin with a quote, quotes are ordinary bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

QUOTE = ord('"')
LINE_ENDS = b"\r\n"


class QuotedSpans:
    """The quoted spans of text that begins with a record."""

    def __init__(self, text: bytes, delimiter: bytes) -> None:
        data = np.frombuffer(text, np.uint8)
        quotes = np.flatnonzero(data == QUOTE) if b'"' in text else np.empty(0, np.int64)
        edges = _alternating(data, quotes, delimiter)
        self.unclosed = int(edges[-1]) if len(edges) % 2 else None
        if self.unclosed is not None:
            edges = np.append(edges, len(text))
        self.starts, self.stops = edges[::2], edges[1::2]

    def around(self, position: int) -> tuple[int, int] | None:
        """Return the span of quotes around a byte, or None."""
        span = int(np.searchsorted(self.starts, position)) - 1
        if span < 0 or self.stops[span] <= position:
            return None
        return int(self.starts[span]), int(self.stops[span])


def last_record_end(text: bytes, spans: QuotedSpans) -> int:
    """Return the end of the last whole record of a text, after its line end; 0 if it has none."""
    for line_end in (b"\n", b"\r"):  # b"\r" ends lines of old Macintosh files
        end = text.rfind(line_end)
        while (span := spans.around(end)) is not None:
            end = text.rfind(line_end, 0, span[0])
        if end >= 0:
            return end + 1
    return 0


def first_record_end(text: bytes, spans: QuotedSpans) -> int:
    """Return the end of the first record of a text, after its line end; 0 if it does not end."""
    start = 0
    while True:
        ends = [end for line_end in (b"\n", b"\r") if (end := text.find(line_end, start)) >= 0]
        if not ends:
            return 0
        span = spans.around(min(ends))
        if span is None:
            return min(ends) + 1 + (text[min(ends) : min(ends) + 2] == b"\r\n")
        start = span[1]


def plain_lines(text: bytes) -> int | None:
    r"""Return the number of lines if each line is certainly one record; else None: the text has to be parsed.

    Examples
    --------
    >>> plain_lines(b"1,2\n3\n"), plain_lines(b"1,2\n3"), plain_lines(b'1,"\n"\n'), plain_lines(b"1\n\n2")
    (2, 2, None, None)
    """
    if b'"' in text or b"\r" in text or b"\n\n" in text or text.startswith(b"\n"):
        return None
    return text.count(b"\n") + (bool(text) and not text.endswith(b"\n"))


def _alternating(data: NDArray[np.uint8], quotes: NDArray[np.int64], delimiter: bytes) -> NDArray[np.int64]:
    """Return quotes that open and close in turn, with or without doubled ones.

    If each second quote starts a cell, or is the second of a doubled one, then all quotes open and close in turn.
    Otherwise a walk from quote to quote decides.
    """
    if _stand_behind(data, quotes[::2], LINE_ENDS + delimiter + b'"').all():
        return quotes
    opens_cell = _stand_behind(data, quotes, LINE_ENDS + delimiter)
    return np.fromiter(_walk(quotes.tolist(), opens_cell.tolist()), np.int64)


def _stand_behind(data: NDArray[np.uint8], positions: NDArray[np.int64], these: bytes) -> NDArray[np.bool_]:
    """Return the positions that follow one of these bytes, or the start of the text."""
    is_one = np.zeros(256, bool)
    is_one[list(these)] = True
    found: NDArray[np.bool_] = is_one[data[positions - 1]]
    if len(positions) and not positions[0]:
        found[0] = True
    return found


def _walk(quotes: list[int], opens_cell: list[bool]) -> Iterator[int]:
    i = 0
    while i < len(quotes):
        if not opens_cell[i]:
            i += 1
            continue
        yield quotes[i]
        i += 1
        while i + 1 < len(quotes) and quotes[i + 1] == quotes[i] + 1:
            i += 2
        if i < len(quotes):
            yield quotes[i]
            i += 1
