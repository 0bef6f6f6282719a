"""Layers of feature columns, for user-written model_fns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, UsageError
from psflow.ps_runtime.feature_columns.choosing import (
    as_list,
    deep_columns_faults,
    linear_columns_faults,
    sequence_columns_faults,
)
from psflow.ps_runtime.feature_columns.kinds import (
    COMBINERS,
    Combiner,
    DenseColumn,
    LinearColumn,
    SequenceDenseColumn,
    SequenceNumericColumn,
)
from psflow.ps_runtime.feature_columns.sequence_steps import SequenceTransformation, common_lengths
from psflow.ps_runtime.feature_columns.transforming import Transformation
from psflow.ps_runtime.initializers import zeros
from psflow.ps_runtime.model.calls.scope import get_variable, read_columns
from psflow.ps_runtime.model.canned.column_inputs import (
    Embedded,
    IdRows,
    column_specs,
    deep_input,
    deep_inputs,
    linear_inputs,
)
from psflow.ps_runtime.model.canned.features import Ids
from psflow.ps_runtime.numeric import numpy_of, plain


def input_layer(
    features: Any, feature_columns: DenseColumn | Iterable[DenseColumn], *, name: str = "input_layer"
) -> Any:
    """Concatenate numeric columns, in the sorted order of their names.

    Parameters
    ----------
    features : mapping of str to array
        Raw features, as passed to model_fn.
    feature_columns : column or iterable of column
        Numeric, bucketized, indicator and embedding columns.
    name : str
        Prefix of the names of variables; must differ for each layer of a model_fn.

    Returns
    -------
    (batch, width) float32 array
        Within `minimize` autograd traces the embedding vectors, ``<name>/<column>/embedding_weights``.

    Raises
    ------
    UsageError
        If a column is not numeric.
    InputError
        If a feature is missing, or does not fit its column.
    ModelFnError
        If this call of model_fn already has a layer with this name.

    Examples
    --------
    >>> from psflow.feature_column import bucketized_column, numeric_column
    >>> area = numeric_column("area")
    >>> input_layer({"area": [3.0, 7.0]}, [area, bucketized_column(area, [5.0])])
    array([[3., 1., 0.],
           [7., 0., 1.]], dtype=float32)
    """
    columns = as_list(feature_columns)
    _check(deep_columns_faults(columns))
    blocks = [
        block.rows.look_up(block.ids) if isinstance(block, Embedded) else block
        for block in deep_inputs(Transformation(features), columns, name).values()
    ]
    np_ = numpy_of(next((block for block in blocks if plain(block) is not block), None))
    return np_.concatenate(blocks, axis=1)


def linear_model(
    features: Any,
    feature_columns: LinearColumn | Iterable[LinearColumn],
    units: int = 1,
    sparse_combiner: Combiner = "sum",
    *,
    name: str = "linear_model",
) -> Any:
    """Add the weighted columns and a bias.

    Parameters
    ----------
    features : mapping of str to array
        Raw features, as passed to model_fn.
    feature_columns : column or iterable of column
        Categorical, numeric and indicator columns.
    units : int
        Number of sums, each with its own weights.
    sparse_combiner : {"sum", "mean", "sqrtn"}
        How to combine the weights of several ids of an example.
    name : str
        Prefix of the names of variables; must differ for each layer of a model_fn.

    Returns
    -------
    (batch, units) array
        Within `minimize` autograd traces the weights, ``<name>/<column>/weights``, and ``<name>/bias_weights``. All
        start at 0.

    Raises
    ------
    UsageError
        If a column is an embedding, or the combiner does not exist.
    InputError
        If a feature is missing, or does not fit its column.
    ModelFnError
        If this call of model_fn already has a layer with this name.
    """
    columns = as_list(feature_columns)
    faults = (
        [] if sparse_combiner in COMBINERS else [f"sparse_combiner is {sparse_combiner!r}, expected sum, mean, sqrtn"]
    )
    _check([*faults, *linear_columns_faults(columns)])
    outputs = get_variable(f"{name}/bias_weights", (units,), initializer=zeros)
    for column, values in linear_inputs(Transformation(features), columns, sparse_combiner, name).items():
        of_column = f"{name}/{column}/weights"
        if isinstance(values, Ids):
            outputs = outputs + IdRows(of_column, values.num_ids, units, zeros).look_up(values)
        else:
            weights = get_variable(of_column, (values.shape[1], units), initializer=zeros)
            outputs = outputs + numpy_of(weights).dot(values, weights)
    return outputs


def _check(faults: list[str]) -> None:
    if faults:
        raise UsageError(tuple(faults))


def sequence_input_layer(
    features: Any,
    feature_columns: SequenceDenseColumn | Iterable[SequenceDenseColumn],
    *,
    name: str = "sequence_input_layer",
) -> tuple[Any, NDArray[np.int64]]:
    """Concatenate sequence columns, in the sorted order of their names.

    Parameters
    ----------
    features : mapping of str to array
        Raw features, as passed to model_fn: each ``(batch, length)`` or ``(batch, length, n)``.
    feature_columns : column or iterable of column
        Made by `sequence_numeric_column`, or indicators and embeddings of sequences of categories.
    name : str
        Prefix of the names of variables; must differ for each layer of a model_fn.

    Returns
    -------
    inputs : (batch, length, width) float32 array
        `length` is that of the arrays. Within `minimize` autograd traces the embedding vectors,
        ``<name>/<column>/embedding_weights``. A step without a value is 0, or the default of its column.
    sequence_length : (batch,) int64 array
        Number of steps of each sequence, up to the last one with a value.

    Raises
    ------
    UsageError
        If a column is not a sequence column.
    InputError
        If a feature is missing, or does not fit its column; if the sequences of an example differ in length.
    ModelFnError
        If this call of model_fn already has a layer with this name.

    References
    ----------
    ``tf.keras.experimental.SequenceFeatures`` returns the same.

    Examples
    --------
    >>> from psflow.feature_column import sequence_numeric_column
    >>> inputs, lengths = sequence_input_layer({"x": [[3.0, 7.0], [1.0, np.nan]]}, sequence_numeric_column("x"))
    >>> inputs.tolist(), lengths.tolist()
    ([[[3.0], [7.0]], [[1.0], [0.0]]], [2, 1])
    """
    columns = as_list(feature_columns)
    if faults := sequence_columns_faults(columns):
        raise UsageError(tuple(faults))
    read_columns(name, lambda: column_specs(name, columns))
    sequences = SequenceTransformation(features)
    in_order = sorted(columns, key=lambda column: column.name)
    steps = {column.name: sequences.steps(column) for column in in_order}
    lengths = common_lengths({column: found.lengths for column, found in steps.items()})
    if len(widths := {found.present.shape[1]: column for column, found in steps.items()}) > 1:
        shown = " and ".join(f"{column!r} has {length}" for length, column in widths.items())
        raise InputError((f"the arrays of sequences differ in length, {shown}; pad them to one length",))
    blocks = []
    for column in in_order:
        if isinstance(column, SequenceNumericColumn):
            blocks.append(sequences.numbers(column))
        else:
            block = deep_input(steps[column.name].transformation, column, name)
            blocks.append(block.rows.look_up(block.ids) if isinstance(block, Embedded) else block)
    np_ = numpy_of(next((block for block in blocks if plain(block) is not block), None))
    shape = *next(iter(steps.values())).present.shape, sum(block.shape[1] for block in blocks)
    return np_.reshape(np_.concatenate(blocks, axis=1), shape), lengths
