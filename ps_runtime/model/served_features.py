"""What an export is given, as the features of its model: the same wherever it is served, and where it is tried out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psflow.ps_runtime.columns.frames import table_of
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.schema_enforcement import enforce_features, missing_faults, scale_features, stacked

__all__ = ["served_features"]


def served_features(given: Any, schema: InputSchema, where: str) -> Any:
    """Return the features that a model reads, out of values as they are stored.

    Raises
    ------
    InputError
        With all faults that make it another input than that of training.
    """
    if schema.preprocessing is not None:
        return _preprocessed(given, schema.preprocessing, schema, where)
    is_frame = hasattr(given, "columns") and not isinstance(given, Mapping)
    if is_frame and schema.is_table:
        columns = list(schema.columns)
        if faults := missing_faults(where, "column", columns, list(given.columns)):
            raise InputError(tuple(faults))
        given = given[columns].to_numpy()
    elif is_frame:
        texts = {spec.name for spec in schema.features if spec.is_text}  # a number among these is no text
        given = {name: given[name] if name in texts else stacked(given[name]) for name in given.columns}
    return scale_features(enforce_features(given, schema, where), schema, where)


def _preprocessed(given: Any, preprocessing: Preprocessing, schema: InputSchema, where: str) -> Any:
    """Return the features of raw columns: of a table of pyarrow, a DataFrame, or a mapping of arrays."""
    if not hasattr(given, "column_names"):
        if not hasattr(given, "keys"):
            names = ", ".join(repr(column.name) for column in preprocessing.raw_columns[:10])
            raise InputError((f"{where} is a {type(given).__name__}: expected columns with the names {names}",))
        given = table_of(given, preprocessing.raw_columns, schema.na_values)
    return preprocessing.apply(given)
