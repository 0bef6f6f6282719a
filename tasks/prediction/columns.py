"""Names and types of the columns of an output, and conversion of predictions to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.raw_types import arrow_type
from psflow.ps_runtime.errors import InputError, ModelFnError, UsageError, did_you_mean
from psflow.tasks.prediction.options import OutputFormat

if TYPE_CHECKING:
    import pyarrow as pa

TEXT = "str"
"""Dtype name of strings of any length in a signature."""
FORMULA = r"^[=+\-@\t\r\n]"
"""First characters of strings that spreadsheets evaluate as formulas."""
SIGNED_NUMBER = r"^[+-](?:[0-9]+\.?[0-9]*|\.[0-9]+)(?i:e[+-]?[0-9]+)?$"
SAME_FOR_ALL = ("all_class_ids", "all_classes")
"""Predictions of a classifier that are equal in all rows: written only on request."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted array in the signature of a model."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name!r}: {self.dtype}{list(self.shape) if self.shape else ''}"

    @property
    def is_column(self) -> bool:
        """Whether it has one value per row, possibly in an array."""
        return self.shape in ((), (1,))

    @property
    def row_size(self) -> int:
        """Number of values per row."""
        return math.prod(self.shape)

    def is_like(self, array: NDArray[Any], num_rows: int) -> bool:
        """Return whether an array has this dtype and shape for `num_rows` rows."""
        is_text = self.dtype == TEXT and array.dtype.kind == "U"
        return array.shape == (num_rows, *self.shape) and (is_text or str(array.dtype) == self.dtype)


def chosen_predictions(known: Sequence[Prediction], names: Sequence[str] | None) -> tuple[Prediction, ...]:
    """Return the predictions to write; by default all except those that are equal in all rows.

    Raises UsageError if a name is unknown or repeated.
    """
    if names is None:
        return tuple(prediction for prediction in known if prediction.name not in SAME_FOR_ALL)
    by_name = {prediction.name: prediction for prediction in known}
    faults = [
        f"predict_keys names {name!r}: the model predicts {', '.join(map(repr, by_name))}{did_you_mean(name, by_name)}"
        for name in names
        if name not in by_name
    ]
    faults += [f"predict_keys names {name!r} twice" for name in dict.fromkeys(names) if list(names).count(name) > 1]
    if faults:
        raise UsageError(tuple(faults))
    return tuple(by_name[name] for name in names)


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """The columns of an output: keys first, then predictions.

    Raises
    ------
    InputError
        If two columns have the same name.
    ModelFnError
        If the format does not support the type of a prediction.
    """

    keys: tuple[RawColumn, ...]
    predictions: tuple[Prediction, ...]
    output_format: OutputFormat
    escape_formulas: bool = False

    def __post_init__(self) -> None:
        names = [key.name for key in self.keys]
        for prediction in self.predictions:
            for name in self._names(prediction):
                if name in names:
                    kind = "a key column" if name in [key.name for key in self.keys] else "another prediction"
                    raise InputError((f"the prediction {name!r} has the name of {kind}; rename that one",))
                names.append(name)

    def schema(self) -> pa.Schema:
        """Return names and types of the columns.

        Raises ModelFnError if no column supports the type of a prediction.
        """
        import pyarrow as pa

        fields = [(key.name, arrow_type(key.type)) for key in self.keys]
        for prediction in self.predictions:
            value = _value_type(prediction)
            if self.output_format == "parquet" and not prediction.is_column:
                value = pa.list_(value, prediction.row_size)
            fields += [(name, value) for name in self._names(prediction)]
        if self.escape_formulas:
            fields = [(escaped(pa.array([name]))[0].as_py(), kind) for name, kind in fields]
        return pa.schema(fields)

    def described(self) -> dict[str, str]:
        """Return the type of each column by name, for display."""
        import pyarrow as pa

        kinds = {field.name: field.type for field in self.schema()}
        return {
            name: f"{kind.value_type}[{kind.list_size}]" if pa.types.is_fixed_size_list(kind) else str(kind)
            for name, kind in kinds.items()
        }

    def table(
        self, keys: pa.Table, predictions: Mapping[str, NDArray[Any]], num_rows: int, schema: pa.Schema
    ) -> pa.Table:
        """Return key columns and predictions of some rows as a table with this `schema`.

        Raises ModelFnError if a prediction contradicts the signature of the model.
        """
        import pyarrow as pa

        columns = [keys.column(key.name) for key in self.keys]
        for prediction in self.predictions:
            array = _checked(predictions, prediction, num_rows)
            if prediction.is_column:
                columns.append(pa.array(array.reshape(num_rows)))
                continue
            flat = np.ascontiguousarray(array).reshape(num_rows, -1)
            match self.output_format:
                case "parquet":
                    columns.append(pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), prediction.row_size))
                case "csv":
                    columns += [pa.array(np.ascontiguousarray(flat[:, i])) for i in range(flat.shape[1])]
                case _:
                    assert_never(self.output_format)
        if self.escape_formulas:
            columns = [escaped(column) if pa.types.is_string(column.type) else column for column in columns]
        return pa.Table.from_arrays(columns, schema=schema)

    def _names(self, prediction: Prediction) -> list[str]:
        if self.output_format == "parquet" or prediction.is_column:
            return [prediction.name]
        return [f"{prediction.name}_{index}" for index in range(prediction.row_size)]


def escaped(texts: pa.Array | pa.ChunkedArray) -> Any:
    """Return strings that a spreadsheet does not evaluate: an apostrophe precedes those that start like formulas.

    A signed number, such as ``-3.2``, is not a formula. Nulls stay.

    Examples
    --------
    >>> import pyarrow as pa
    >>> escaped(pa.array(["=1+1", "-3.2", "-x", None, "a=b"])).to_pylist()
    ["'=1+1", '-3.2', "'-x", None, 'a=b']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    begins = pc.match_substring_regex(texts, FORMULA)
    is_formula = pc.and_(begins, pc.invert(pc.match_substring_regex(texts, SIGNED_NUMBER)))
    return pc.if_else(is_formula, pc.binary_join_element_wise("'", texts, pa.scalar("")), texts)


def _value_type(prediction: Prediction) -> pa.DataType:
    import pyarrow as pa

    if prediction.dtype == TEXT:
        return pa.string()
    try:
        return pa.from_numpy_dtype(np.dtype(prediction.dtype))
    except (pa.ArrowNotImplementedError, TypeError):
        what = f"the prediction {prediction} has an unsupported type: expected numbers, booleans or strings"
        raise ModelFnError((f"{what}; leave it out with predict_keys",)) from None


def _checked(predictions: Mapping[str, NDArray[Any]], expected: Prediction, num_rows: int) -> NDArray[Any]:
    array = predictions.get(expected.name)
    if array is None or not expected.is_like(array, num_rows):
        got = "nothing" if array is None else f"{array.dtype}{list(array.shape)}"
        wanted = f"{expected.dtype}{[num_rows, *expected.shape]}"
        raise ModelFnError(
            (f"for {num_rows} rows model_fn predicted {got} as {expected.name!r}: expected {wanted}, as exported",)
        )
    return array
