from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv as arrow_csv

from psflow.ps_runtime.tabular_files.cuts import QuotedSpans, first_record_end, last_record_end

TEXTS = st.text(alphabet='",\n\ra ', max_size=40).map(str.encode)


def record_ends(text: bytes) -> tuple[list[int], bool]:
    """Return where records end, by the states of pyarrow's parser, and whether a quote is left open."""
    ends, in_quotes, begins, i = [], False, True, 0
    while i < len(text):
        byte = text[i : i + 1]
        if in_quotes:
            if text[i : i + 2] == b'""':
                i += 1
            elif byte == b'"':
                in_quotes = False
        elif byte == b'"' and begins:
            in_quotes = True
        elif byte in b"\r\n":
            ends.append(i + 1)
        begins = not in_quotes and byte in b",\r\n"
        i += 1
    return ends, in_quotes


@given(TEXTS)
def test_records_end_where_no_quotes_enclose_a_line_end(text: bytes) -> None:
    ends, is_open = record_ends(text)
    spans = QuotedSpans(text, b",")
    newlines = [end for end in ends if text[end - 1 : end] == b"\n"]
    assert last_record_end(text, spans) == max(newlines or ends, default=0)
    first = min(ends, default=0)
    assert first_record_end(text, spans) == first + (text[first - 1 : first + 1] == b"\r\n")
    assert (spans.unclosed is not None) == is_open


@given(TEXTS)
def test_pyarrow_reads_the_same_rows_up_to_a_cut_and_behind_it(text: bytes) -> None:
    def rows(part: bytes) -> list[str]:
        found = []
        for end, start in zip(record_ends(part + b"\n")[0], [0, *record_ends(part + b"\n")[0]], strict=False):
            found.append((part + b"\n")[start:end].strip(b"\r\n"))
        return [row for row in found if row]

    cut = last_record_end(text, QuotedSpans(text, b","))
    if record_ends(text)[1]:  # one record from there on
        return
    assert rows(text[:cut]) + rows(text[cut:]) == rows(text)


@given(st.lists(st.lists(st.text(alphabet='",\n\r;xé ', max_size=5), min_size=2, max_size=2), min_size=1, max_size=8))
def test_what_the_csv_module_writes_is_cut_between_rows(rows: list[list[str]]) -> None:
    written = [io.StringIO() for _ in rows]
    for file, row in zip(written, rows, strict=True):
        csv.writer(file, lineterminator="\r\n").writerow(row)
    parts = [file.getvalue().encode() for file in written]
    text = b"".join(parts)
    cut_off = text[:-2]
    assert last_record_end(cut_off, QuotedSpans(cut_off, b",")) == len(text) - len(parts[-1])
    assert first_record_end(text, QuotedSpans(text, b",")) == len(parts[0])


@pytest.mark.parametrize(
    ("text", "num_rows"),
    [
        (b'5" pipe,a\n"x\ny",b\n', 2),
        (b'"a"b"c,d\n"e",f\n', 2),
        (b' "a,b\n1,2"\n', 2),
        (b'"""","\n"\n"a""\n"",",b\n', 2),
        (b"1,2\r\r\n3,4\r", 2),
    ],
)
def test_quotes_that_stand_in_odd_places_as_pyarrow_reads_them(text: bytes, num_rows: int) -> None:
    names = arrow_csv.ReadOptions(column_names=["a", "b"], use_threads=False)
    table = arrow_csv.read_csv(
        pa.BufferReader(text), names, arrow_csv.ParseOptions(newlines_in_values=True), arrow_csv.ConvertOptions()
    )
    assert table.num_rows == num_rows
    start = cuts = 0
    while start < len(text):
        rest = text[start:]
        end = first_record_end(rest, QuotedSpans(rest, b","))
        cuts += bool(rest[:end].strip())
        start += end
    assert cuts == num_rows


def test_a_cut_before_many_quoted_line_ends_is_found() -> None:
    text = b"1,2\n" + b'"x\n",' * 5_000
    assert last_record_end(text, QuotedSpans(text, b",")) == 4
