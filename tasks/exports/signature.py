"""MLflow signature and input example of an export."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from psflow.ps_runtime.columns.example import example_record
from psflow.ps_runtime.data.user_code import user_code
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.model.export.outputs import DEFAULT_SIGNATURE
from psflow.ps_runtime.model.export.receiver import ServingInputReceiverFn
from psflow.ps_runtime.model.export.serving_input import ServingInput, served_features
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    from psflow.ps_runtime.columns.preprocessing import Preprocessing
    from psflow.ps_runtime.columns.reading import Column
    from psflow.ps_runtime.model.export.bundle import ExportBundle
    from psflow.ps_runtime.specs.schema import ArraySpec


def tried_receiver(function: ServingInputReceiverFn, schema: InputSchema | None) -> ServingInput:
    """Call a serving_input_receiver_fn on its examples; return it with its received arrays.

    Raises UsageError if the function fails, or its features are not those that the model reads.
    """
    with user_code(function, UsageError, "on its examples"):
        receiver = ServingInput.of(function)
    if schema is not None:
        served_features(receiver.example, schema, "what serving_input_receiver_fn makes of its examples")
    return receiver


COLUMN_TYPES = {"float32": "float", "float64": "double", "int32": "integer", "int64": "long"}
"""Names of MLflow."""
STORED_DTYPE = "int64"
"""Type of stored values that a model scales itself: integers."""


def model_signature(bundle: ExportBundle, receiver: ServingInput | None) -> ModelSignature:
    """Return the signature of an export, for the inputs of `receiver` if there is one."""
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import DataType, ParamSchema, ParamSpec

    predictions = bundle.predictions
    if not isinstance(predictions, Mapping):
        predictions = {"predictions": predictions}
    outputs = {name: np.asarray(value) for name, value in predictions.items()}
    inputs = _trained_inputs(bundle) if receiver is None else _received_inputs(receiver)
    chosen = ParamSpec("signature_name", DataType.string, DEFAULT_SIGNATURE)
    params = ParamSchema([chosen]) if bundle.signatures else None
    return ModelSignature(inputs, infer_signature(None, outputs).outputs, params)  # type: ignore[arg-type]


def _trained_inputs(bundle: ExportBundle) -> Schema:
    """Return the columns or arrays of the training input."""
    from mlflow.models import infer_signature
    from mlflow.types import ColSpec, Schema

    schema, dtype = bundle.schema, bundle.schema.features[0].dtype
    if schema.preprocessing is not None:
        filled = schema.preprocessing.filled_columns
        return Schema([_column_spec(column, column.name in filled) for column in schema.preprocessing.columns])
    if any(spec.is_text for spec in schema.features):
        return _any_columns(schema.features)
    if not schema.is_table or dtype not in COLUMN_TYPES:
        inputs: Schema = infer_signature(bundle.features).inputs
        return inputs
    kind = COLUMN_TYPES[dtype if schema.scaling is None else STORED_DTYPE]
    return Schema([ColSpec(kind, name) for name in schema.columns])


def _received_inputs(receiver: ServingInput) -> Schema:
    """Return the columns of a serving function; or arrays, if a row of one of them is an array of floats.

    MLflow passes values of columns unchanged; see `_column_spec`. In an array of integers it would turn 1.5 into 1.
    """
    from mlflow.types import Schema, TensorSpec

    if any(spec.shape for spec in receiver.received) and all(
        np.issubdtype(np.dtype(spec.dtype), np.floating) for spec in receiver.received
    ):
        return Schema([TensorSpec(np.dtype(spec.dtype), (-1, *spec.shape), spec.name) for spec in receiver.received])
    return _any_columns(receiver.received)


def _any_columns(specs: Iterable[ArraySpec]) -> Schema:
    """Return columns whose values MLflow passes unchanged."""
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType

    text, anything = DataType.string, AnyType()  # type: ignore[no-untyped-call]
    return Schema([ColSpec(text if spec.is_text and not spec.shape else anything, spec.name) for spec in specs])


def _column_spec(column: Column, is_filled: bool) -> ColSpec:
    """Return the MLflow column of a raw column, optional if missing values are usual.

    MLflow would convert values: 26.5 in an integer column becomes 26, the text "no" becomes true, the number 2026 a
    time, and null in a column of strings the string "None". It refuses integers of another size. So the type is Any,
    and the model itself checks the values.
    """
    from mlflow.types import ColSpec
    from mlflow.types.schema import AnyType

    required = not (is_filled or column.num_missing)
    return ColSpec(AnyType(), column.name, required=required)  # type: ignore[no-untyped-call]


def input_example(preprocessing: Preprocessing) -> pd.DataFrame:
    """Return two synthetic records: a complete one, and one with missing values where they are usual."""
    import pandas as pd

    record = example_record(preprocessing)
    optional = {column.name for column in preprocessing.columns if column.num_missing} | preprocessing.filled_columns
    partial = {name: None if name in optional else value for name, value in record.items()}
    return pd.DataFrame([record, partial] if optional else [record], dtype=object)
