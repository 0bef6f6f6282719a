"""Facts of finished parts, in files of their own until the manifest is written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from psflow.ps_runtime.checkpoint.typed_json import as_kind, from_json


@dataclass(frozen=True, slots=True)
class CellCount:
    """Number of cells of some kind in a column, and file and row of the first one."""

    cells: int
    file: str
    first_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """Facts of a part of an output."""

    name: str
    rows: int
    rejects: int
    first_record: int
    file: str
    first_in_file: int
    num_bytes: int
    sha256: str
    not_finite_rows: int
    not_finite: Mapping[str, CellCount]
    invalid_rows: int
    invalid: Mapping[str, CellCount]

    @property
    def num_records(self) -> int:
        """Number of its input records, rejects included."""
        return self.rows + self.rejects

    def to_json(self) -> bytes:
        """Return the facts as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> PartFacts:
        """Parse the output of `to_json`; ValueError if it is invalid."""
        return as_kind(cls, from_json(text), "part")


def all_not_finite(parts: Iterable[PartFacts]) -> dict[str, Any]:
    """Return the number of rows of ordered parts with such cells, and for each column their number and the first."""
    return _all((part.not_finite_rows, part.not_finite) for part in parts)


def all_invalid(parts: Iterable[PartFacts]) -> dict[str, Any]:
    """Like `all_not_finite`, for invalid cells that were read as missing."""
    return _all((part.invalid_rows, part.invalid) for part in parts)


def _all(counted: Iterable[tuple[int, Mapping[str, CellCount]]]) -> dict[str, Any]:
    rows = 0
    columns: dict[str, dict[str, Any]] = {}
    for num_rows, counts in counted:
        rows += num_rows
        for name, count in counts.items():
            found = columns.setdefault(name, {"cells": 0, "first_row": count.first_row, "file": count.file})
            found["cells"] += count.cells
    return {"rows": rows, "columns": columns}
