"""How the text of a training input is read: further files are read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LibSvmReading", "TextReading", "text_from"]


@dataclass(frozen=True, slots=True)
class TextReading:
    """How delimited text is read; see `psflow.ps_runtime.record_files.delimited.DelimitedText`.

    The delimiter is None if it is that of the format, a comma in CSV and a tab in TSV: further files may be of either.
    """

    delimiter: str | None
    column_names: tuple[str, ...] | None
    na_values: tuple[str, ...]
    encoding: str


@dataclass(frozen=True, slots=True)
class LibSvmReading:
    """How libsvm text is read; see `psflow.ps_runtime.record_files.libsvm.LibSvmText`."""

    zero_based: bool


def text_from(facts: Mapping[str, Any]) -> TextReading | LibSvmReading:
    """Read what `dataclasses.asdict` made of either; KeyError, TypeError or ValueError where it cannot be."""
    if "zero_based" in facts:
        return LibSvmReading(bool(facts["zero_based"]))
    names = facts["column_names"]
    return TextReading(
        None if facts["delimiter"] is None else str(facts["delimiter"]),
        None if names is None else tuple(map(str, names)),
        tuple(map(str, facts["na_values"])),
        str(facts["encoding"]),
    )
