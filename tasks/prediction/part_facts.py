"""What is known of a part that was written: beside it while others are written, in the manifest at the end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from psflow.ps_runtime.checkpoint.typed_json import as_kind, from_json


@dataclass(frozen=True, slots=True)
class CellCount:
    """How many cells of a column are of some kind, and the first of them: its file, and its row there."""

    cells: int
    file: str
    first_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFacts:
    """A part of an output."""

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
        """How many records of the input it has taken in."""
        return self.rows + self.rejects

    def to_json(self) -> bytes:
        """Return the facts as text."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> PartFacts:
        """Read what `to_json` wrote; ValueError where it cannot be."""
        return as_kind(cls, from_json(text), "part")


def all_not_finite(parts: Iterable[PartFacts]) -> dict[str, Any]:
    """Return how many rows of some parts, in order, have such cells, and of each column how many, and the first."""
    return _all((part.not_finite_rows, part.not_finite) for part in parts)


def all_invalid(parts: Iterable[PartFacts]) -> dict[str, Any]:
    """Return as `all_not_finite` what there is of invalid cells that were made blank."""
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
