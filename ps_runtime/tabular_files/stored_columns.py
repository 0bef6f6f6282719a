"""Converts the typed columns of Parquet and Arrow files to raw columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from psflow.ps_runtime.columns.raw_types import (
    cast_values,
    first_fault,
    is_stored_as,
    raw_type,
    wider_type,
)
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.tabular_files.base import OnInvalid, RecordError
from psflow.ps_runtime.tabular_files.text_cells import parse_cells, stripped, value_fault

if TYPE_CHECKING:
    import pyarrow as pa


@contextmanager
def whole_file(form: str) -> Iterator[None]:
    """Turn pyarrow's errors for a damaged or foreign file into a RecordError."""
    import pyarrow as pa

    try:
        yield
    except InputError:  # a ValueError, but complete already
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise RecordError(
            f"the file cannot be read as {form} ({reason}); it may be damaged, truncated, or of another format"
        ) from None


def check_names(schema: pa.Schema) -> None:
    """Raise RecordError if two columns have the same name."""
    if twice := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise RecordError(f"column {twice[0]!r} occurs {schema.names.count(twice[0])} times; rename the others")


def stored_types(schema: pa.Schema, names: Sequence[str]) -> dict[str, str]:
    """Return the types of some columns; pyarrow's name for unreadable ones."""
    return {name: raw_type(schema.field(name).type) for name in names}


def as_raw_columns(
    table: pa.Table, types: Mapping[str, str], set_types: Mapping[str, str], on_invalid: OnInvalid | None = None
) -> pa.Table:
    """Return stored columns as raw ones.

    Raises RecordError if a column, or a value, is not of its type.
    """
    import pyarrow as pa

    return pa.table(
        {name: _column(table[name], name, raw, name in set_types, on_invalid) for name, raw in types.items()}
    )


def _column(
    values: pa.ChunkedArray, name: str, raw: str, is_set: bool, on_invalid: OnInvalid | None
) -> pa.ChunkedArray:
    import pyarrow as pa

    found = raw_type(values.type)
    if not is_set and not is_stored_as(values.type, raw):
        wider = wider_type(raw)
        widens = wider is not None and is_stored_as(values.type, wider)
        what = f"column {name!r} is {found} in this file, expected {raw} as in the first one"
        raise RecordError(f"{what}; set columns.{name}.type: string", column=name, widens=widens)
    if found == "string" and raw != "string":
        return parse_cells(stripped(cast_values(values, "string"), ()), raw, name, on_invalid)
    try:
        return cast_values(values, raw)
    except pa.ArrowNotImplementedError:
        raise RecordError(f"column {name!r} is {found}, which cannot be read as {raw}", column=name) from None
    except pa.ArrowInvalid:
        record = first_fault(len(values), lambda n: cast_values(values.slice(0, n), raw))
        raise value_fault(name, raw, _shown(values[record]), record) from None


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())[:40]
    except (OverflowError, ValueError):  # Python's times end in the year 9999
        return "a time beyond the year 9999"
