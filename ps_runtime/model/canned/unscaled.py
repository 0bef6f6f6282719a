"""Finds numbers that a canned model reads unscaled, from which it learns slowly or diverges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.feature_columns.choosing import has_columns
from psflow.ps_runtime.feature_columns.kinds import NumericColumn
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema

MAX_SPREAD = 100.0
"""A larger difference between two values of a feature is reported."""
MAX_NAMES = 5
COLUMN_PARAMS = ("feature_columns", "linear_feature_columns", "dnn_feature_columns")


def unscaled_sentences(features: Any, schema: InputSchema, params: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return a sentence if the numbers that a model reads differ by more than `MAX_SPREAD`, else none.

    Parameters
    ----------
    features : array or mapping of str to array
        The first batch of the input: a look at more of it would take time.
    schema : InputSchema
        The features that the model reads.
    params : mapping
        Those of a canned model.
    where : str
        The name of the input, such as ``the train input``.

    Examples
    --------
    >>> from psflow.ps_runtime.data.enforcement import schema_of
    >>> features = {"income": np.array([0.0, 250_000.0]), "rate": np.array([0.1, 0.2])}
    >>> [sentence] = unscaled_sentences(features, schema_of(features, None), {"feature_columns": None}, "the input")
    >>> sentence.partition(";")[0]
    "feature 'income' ranges from 0 to 250,000 in the first batch of the input"
    """
    wide = []
    for name, numbers in _numbers_read(features, schema, params):
        known = numbers[np.isfinite(numbers)].astype(np.float64)
        if known.size and (high := known.max()) - (low := known.min()) > MAX_SPREAD:
            wide.append(f"{repr(name) if name else 'the array'} ranges from {low:,.6g} to {high:,.6g}")
    if not wide:
        return ()
    more = f" and {len(wide) - MAX_NAMES} more" if len(wide) > MAX_NAMES else ""
    found = f"feature {', '.join(wide[:MAX_NAMES])}{more} in the first batch of {where}"
    if schema.preprocessing is not None:
        return (f"{found}; set normalize: standard of its column, as psflow init does",)
    return (f"{found}; psflow does not scale features in Python: scale it, or use psflow init, which does",)


def _numbers_read(
    features: Any, schema: InputSchema, params: Mapping[str, Any]
) -> Iterator[tuple[str, NDArray[np.number[Any]]]]:
    """Yield the name and the values of each numeric feature that the model does not transform."""
    parts = [params[name] for name in COLUMN_PARAMS if name in params]
    if not parts:  # a baseline, which reads no feature
        return
    columns = [column for part in parts if has_columns(part) for column in part]
    plain = {column.key for column in columns if isinstance(column, NumericColumn) and column.normalizer_fn is None}
    named = features if isinstance(features, Mapping) else {"": features}
    apart = {schema.weight, *(spec.weights for spec in schema.features if spec.weights)}
    for spec in schema.features:
        is_read = spec.name in plain if columns else not spec.num_ids and spec.name not in apart
        if not is_read or np.dtype(spec.dtype).kind not in "iuf" or spec.name not in named:
            continue
        values = np.asarray(named[spec.name])
        if spec.name == MATRIX and schema.columns:
            yield from zip(schema.columns, values.T, strict=True)
        else:
            yield spec.name, values
