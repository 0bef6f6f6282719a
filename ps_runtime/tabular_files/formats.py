"""The formats of tabular files, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from psflow.ps_runtime.tabular_files.arrow_file import ArrowFile
from psflow.ps_runtime.tabular_files.base import RecordFormat
from psflow.ps_runtime.tabular_files.delimited import DelimitedText
from psflow.ps_runtime.tabular_files.json_lines import JsonLines
from psflow.ps_runtime.tabular_files.libsvm import LibSvmText
from psflow.ps_runtime.tabular_files.parquet import Parquet

RECORD_FORMATS: Mapping[str, type[RecordFormat]] = MappingProxyType(
    {kind.name: kind for kind in (DelimitedText, JsonLines, LibSvmText, Parquet, ArrowFile)}
)
"""Each format by its name in a record index."""
