"""A scanned input of tabular files, with all that other processes need to read it without a scan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.data.input_scan import InputScan, source_of
from psflow.ps_runtime.data.invalid_cells import InvalidCells
from psflow.ps_runtime.data.non_finite import NonFiniteCells, NonFiniteColumn
from psflow.ps_runtime.data.part import InputPart
from psflow.ps_runtime.specs.input import LibSvmReading, TextReading
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.tabular_files.files import DataFile
from psflow.ps_runtime.tabular_files.index import RecordIndex
from psflow.ps_runtime.tabular_files.sealed import seal, unseal


@dataclass(frozen=True, slots=True)
class Asked:
    """The description of an input when it was scanned."""

    paths: tuple[str, ...]
    description: str


@dataclass(frozen=True, eq=False, kw_only=True)
class ScannedInput:
    """The results of a scan, what was learned, and the description of the input."""

    asked: Asked
    vocabularies: tuple[DataFile, ...]
    model: str
    scan: InputScan
    preprocessing: Preprocessing
    text: TextReading | LibSvmReading | None
    unused: tuple[str, ...]
    drops: bool
    part: InputPart | None
    left_out: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Return this as the content of a file, with a checksum."""
        cells = self.scan.non_finite
        described = {
            "asked": asdict(self.asked),
            "vocabularies": [[file.url, file.size, file.stamp] for file in self.vocabularies],
            "model": self.model,
            "schema": InputSchema((), preprocessing=self.preprocessing, text=self.text).to_facts(),
            "unused": self.unused,
            "left_out": self.left_out,
            "drops": self.drops,
            "part": None if self.part is None else [self.part.start, self.part.stop],
            "invalid": self.scan.invalid.facts(),
            "cells": {"rows": cells.num_rows, "columns": [asdict(column) for column in cells.columns]},
        }
        arrays: dict[str, NDArray[Any]] = {
            "index": np.frombuffer(self.scan.index.to_bytes(), np.uint8),
            "kept_records": self.scan.kept_records,
            "labels": self.scan.labels,
            "label_records": self.scan.label_records,
        }
        return seal(described, arrays)

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> Self:
        """Return the object that `to_bytes` was called on; `what` names it in error messages.

        Raises InputError if `content` is damaged, or of another version of psflow.
        """
        return unseal(content, what, cls._made)

    @classmethod
    def _made(cls, described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        asked, cells, drops = described["asked"], described["cells"], bool(described["drops"])
        schema = InputSchema.from_facts(described["schema"])
        if schema.preprocessing is None:
            raise ValueError("there is no preprocessing")
        index = RecordIndex.from_bytes(arrays["index"].tobytes())
        columns = tuple(NonFiniteColumn(**column) for column in cells["columns"])
        invalid = InvalidCells.from_facts(described["invalid"], source_of(index))
        found = NonFiniteCells(source_of(index), int(cells["rows"]), columns, drops and bool(cells["rows"]))
        return cls(
            asked=Asked(tuple(asked["paths"]), asked["description"]),
            vocabularies=tuple(DataFile(*file) for file in described["vocabularies"]),
            model=described["model"],
            scan=InputScan(index, arrays["kept_records"], found, invalid, arrays["labels"], arrays["label_records"]),
            preprocessing=schema.preprocessing,
            text=schema.text,
            unused=tuple(described["unused"]),
            left_out=tuple(described["left_out"]),
            drops=drops,
            part=None if described["part"] is None else InputPart(*described["part"]),
        )


def digest_of(facts: Any) -> str:
    """Return 64 hexadecimal digits that identify plain data, including its order."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def model_digest(preprocessing: Preprocessing, text: TextReading | LibSvmReading | None) -> str:
    """Return a digest of the parts of tabular files that a model reads."""
    return digest_of([preprocessing.to_facts(), None if text is None else asdict(text)])
