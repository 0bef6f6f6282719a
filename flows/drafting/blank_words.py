"""Which words mean that a cell is blank, so that no value of another column is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psflow.ps_runtime.record_files.delimited import NA_VALUES
from psflow.ps_runtime.record_files.text_cells import inferred_type

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["blank_words"]

MARKS = ("?", "n/a", "N.A.", "n.a.", "#N/A", "<NA>")
"""These hardly mean anything else, beside numbers or words."""
SIGNS = ("-", "--", ".")
"""These are values among words, and blanks only among numbers."""
CANDIDATES = (*MARKS, *SIGNS)
MOST = 0.5
"""Of the cells of a column: what is more frequent is a value."""


def blank_words(table: pa.Table, label: str) -> tuple[str, ...]:
    """Return the words that are blank wherever they are, beside those that psflow takes for blank anyway.

    The ``na_values`` of an input hold for all of its columns: a word that is a label, or a value of any column, is
    none of them.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    candidates = pa.array(CANDIDATES)
    blank: set[str] = set()
    values: set[str] = set()
    for name in table.column_names:
        cells = table.column(name)
        words = set(pc.unique(cells.filter(pc.is_in(cells, candidates))).to_pylist())
        if words:
            marks = set() if name == label else _marks(cells) & words
            blank |= marks
            values |= words - marks
    return tuple(word for word in CANDIDATES if word in blank - values)


def _marks(cells: pa.ChunkedArray) -> set[str]:
    """Return which candidates mean nothing in a column, by what else it has."""
    import pyarrow as pa
    from pyarrow import compute as pc

    is_candidate = pc.is_in(cells, pa.array(CANDIDATES))
    others = cells.filter(pc.invert(pc.is_in(cells, pa.array([*CANDIDATES, *NA_VALUES, "", None], pa.string()))))
    if not len(others):
        return set()
    is_rare = pc.sum(is_candidate).as_py() <= MOST * len(cells)
    if inferred_type(others) != "string":
        return {*MARKS, *SIGNS} if is_rare else {*MARKS}
    has_letters = pc.all(pc.match_substring_regex(others, r"[\pL\pN]")).as_py()
    return {*MARKS} if is_rare and has_letters else set()
