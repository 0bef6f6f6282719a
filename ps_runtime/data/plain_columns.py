"""Columns of record files for a model that was trained on arrays: each is the number that the model reads, as it is."""

from __future__ import annotations

from psflow.ps_runtime.columns.features import Feature, Group, Number
from psflow.ps_runtime.columns.labels import Label
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema

__all__ = ["plain_preprocessing"]


def plain_preprocessing(schema: InputSchema) -> Preprocessing:
    """Return how columns of the names that a model knows become its features.

    Raises
    ------
    InputError
        If the model reads arrays that no columns can be, or the name of its labels is not known.
    """
    names = schema.table_columns
    if not names:
        raise InputError(("the model was trained on arrays without names of columns: expected arrays of these shapes",))
    columns = tuple(Column(RawColumn(name, "float64"), "float64") for name in names)
    numbers = tuple(map(Number, names))
    features: tuple[Feature, ...] = (Group(MATRIX, numbers),) if schema.columns else numbers
    label = None
    if schema.label is not None and schema.labels:
        dtype = "int64" if schema.labels[0].dtype.startswith(("int", "uint", "bool")) else "float32"
        label = Label(Column(RawColumn(schema.label, "float64"), "float64"), dtype)
    return Preprocessing(columns, features, label)
