"""What MLflow is told of an export: what it takes, what it answers, and what a request may choose."""

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
    """Call a serving_input_receiver_fn on its examples; return it with what it receives.

    Raises
    ------
    UsageError
        If the function fails, or makes other features than the model reads.
    """
    with user_code(function, UsageError, "on its examples"):
        receiver = ServingInput.of(function)
    if schema is not None:
        served_features(receiver.example, schema, "what serving_input_receiver_fn makes of its examples")
    return receiver


COLUMN_TYPES = {"float32": "float", "float64": "double", "int32": "integer", "int64": "long"}
"""MLflow's names."""
STORED_DTYPE = "int64"
"""Of the values that a model scales itself: whole numbers."""


def model_signature(bundle: ExportBundle, receiver: ServingInput | None) -> ModelSignature:
    """Return the signature of an export; with a `receiver` it takes what that receives."""
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
    """Return what the training input had."""
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
    """Return the columns that a function receives; or arrays, if a row of one of them is an array of floats.

    MLflow gives the model the values of columns as they come; see `_column_spec`. In an array of whole numbers it
    would make 1 of 1.5.
    """
    from mlflow.types import Schema, TensorSpec

    if any(spec.shape for spec in receiver.received) and all(
        np.issubdtype(np.dtype(spec.dtype), np.floating) for spec in receiver.received
    ):
        return Schema([TensorSpec(np.dtype(spec.dtype), (-1, *spec.shape), spec.name) for spec in receiver.received])
    return _any_columns(receiver.received)


def _any_columns(specs: Iterable[ArraySpec]) -> Schema:
    """Return columns whose values MLflow leaves as they come."""
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import AnyType

    text, anything = DataType.string, AnyType()  # type: ignore[no-untyped-call]
    return Schema([ColSpec(text if spec.is_text and not spec.shape else anything, spec.name) for spec in specs])


def _column_spec(column: Column, is_filled: bool) -> ColSpec:
    """Return how MLflow calls a raw column: optional where a blank is nothing unusual.

    MLflow would change values on the way: 26.5 of a column of whole numbers becomes 26, the text "no" true, and the
    number 2026 a time, and null in a column of words the word "None". Other whole numbers than those of its own size it
    refuses. So it gives the model whatever comes, and the model itself judges it.
    """
    from mlflow.types import ColSpec
    from mlflow.types.schema import AnyType

    required = not (is_filled or column.num_missing)
    return ColSpec(AnyType(), column.name, required=required)  # type: ignore[no-untyped-call]


def input_example(preprocessing: Preprocessing) -> pd.DataFrame:
    """Return two records that are made up: one in full, and one with blanks where a blank is nothing unusual."""
    import pandas as pd

    record = example_record(preprocessing)
    optional = {column.name for column in preprocessing.columns if column.num_missing} | preprocessing.filled_columns
    blank = {name: None if name in optional else value for name, value in record.items()}
    return pd.DataFrame([record, blank] if optional else [record], dtype=object)
