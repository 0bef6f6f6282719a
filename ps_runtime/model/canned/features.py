"""Reads the features of a batch for canned models: numbers and ids, distinguished by the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.row_lifetime import UNLIMITED, RowLifetime
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.feature_columns.kinds import COMBINERS, Combiner
from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema

MAX_DENSE_IDS = 1000
"""Limit for the ids of one feature with a matrix column each, or a row each in a variable."""


class Ids(NamedTuple):
    """A feature that holds ids."""

    values: NDArray[np.integer[Any]]
    num_ids: int
    embedding: int
    lifetime: RowLifetime = UNLIMITED
    factors: NDArray[np.float32] | None = None

    @property
    def is_table(self) -> bool:
        """Whether the rows are a sparse table rather than a variable."""
        return self.num_ids > MAX_DENSE_IDS


def read_features(features: Any, schema: InputSchema, combiner: Combiner | None = None) -> dict[str, FloatArray | Ids]:
    """Return the features of a batch by name, sorted by name, without the weights of the records.

    Raises InputError if an array is not numeric, has another shape, or the arrays of a mapping differ in length; or if
    there is no feature.

    Examples
    --------
    >>> schema = InputSchema((ArraySpec("age", "int64", ()), ArraySpec("city", "int64", (), num_ids=3)))
    >>> found = read_features({"city": np.array([2]), "age": np.array([41])}, schema)
    >>> found["age"], found["city"].values, found["city"].num_ids
    (array([[41.]], dtype=float32), array([2]), 3)
    """
    named = features if isinstance(features, Mapping) else {"": features}
    if not named:
        raise InputError(("expected at least one feature, got an empty mapping",))
    spec_of = {spec.name: spec for spec in schema.features}
    found: dict[str, FloatArray | Ids] = {}
    lengths: dict[str, int] = {}
    apart = {schema.weight, *(spec.weights for spec in schema.features if spec.weights)}
    for name in sorted(name for name in named if name not in apart):
        array = np.asarray(named[name])
        spec = spec_of[name]
        if spec.combiner:
            found[name] = _several_ids(array, spec, named, combiner)
        else:
            found[name] = _ids(array, spec) if spec.num_ids else _numbers(array, name)
        lengths[name] = len(array)
    if len(set(lengths.values())) > 1:
        raise InputError((f"expected features of equal length, got {lengths} rows",))
    return found


def read_weights(features: Any, weight_column: str | None) -> NDArray[np.float32] | None:
    """Return the weights of the examples of a batch, ``(batch,)``; None without a weight column.

    Raises InputError if the weights are missing, or not one finite number of 0 or more for each example.
    """
    if weight_column is None:
        return None
    if not isinstance(features, Mapping) or weight_column not in features:
        raise InputError(
            (f"expected the weights of the records, {weight_column!r}, as in training; the input lacks them",)
        )
    given = np.asarray(features[weight_column])
    if given.dtype.kind not in "fiub" or given.shape not in ((len(given),), (len(given), 1)):
        raise InputError(
            (f"weights {weight_column!r}: expected one number for each example, got {given.dtype}{list(given.shape)}",)
        )
    weights = given.reshape(len(given)).astype(np.float32, copy=False)
    if not (good := (weights >= 0) & np.isfinite(weights)).all():
        row = int(np.argmin(good))
        raise InputError(
            (f"weights {weight_column!r}: row {row} of the batch is {weights[row]}, expected a finite number >= 0",)
        )
    return weights


def check_lifetimes(schema: InputSchema, *parts: Mapping[str, FloatArray | Ids]) -> None:
    """Refuse a row lifetime of a feature without a table, where it would have no effect.

    Raises InputError with each feature that has a lifetime but no table.
    """
    tables = {name for part in parts for name, ids in part.items() if isinstance(ids, Ids) and ids.is_table}
    faults = [
        f"feature {spec.name!r} has {spec.lifetime}, but no sparse table in this model: it has {spec.num_ids} ids, "
        f"only more than {MAX_DENSE_IDS} are a table, and only if the model reads the feature; leave it out"
        for spec in schema.features
        if spec.lifetime.is_limited and spec.name not in tables
    ]
    if faults:
        raise InputError(tuple(faults))


def check_no_lifetimes(schema: InputSchema) -> None:
    """Refuse a row lifetime used with feature columns, where it would have no effect.

    Raises InputError with each feature that has a lifetime.
    """
    faults = [
        f"feature {spec.name!r} has {spec.lifetime}, but feature columns have no lifetimes; leave it out, or read "
        "features without columns"
        for spec in schema.features
        if spec.lifetime.is_limited
    ]
    if faults:
        raise InputError(tuple(faults))


def one_hot(ids: Ids, name: str) -> NDArray[np.float32]:
    """Return a column for each id, 1 in the rows that have it, else 0; for several ids the sum of their factors.

    Raises InputError if there are more than `MAX_DENSE_IDS` ids.

    Examples
    --------
    >>> one_hot(Ids(np.array([2, 0]), num_ids=3, embedding=0), "city")
    array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    if ids.is_table:
        raise InputError(
            (
                f"feature {name!r} has {ids.num_ids} ids: a deep network takes at most {MAX_DENSE_IDS} without an "
                f"embedding; give it one, by embedding: 16 of its column or cross or by Dataset(..., "
                f"embedding={{{name!r}: 16}}), or use a linear model",
            )
        )
    columns = np.zeros((len(ids.values), ids.num_ids), np.float32)
    if ids.factors is None:
        columns[np.arange(len(columns)), ids.values] = 1
    else:
        rows, places = np.nonzero(ids.values >= 0)
        np.add.at(columns, (rows, ids.values[rows, places]), ids.factors[rows, places])
    return columns


def _ids(array: NDArray[Any], spec: ArraySpec) -> Ids:
    if array.ndim != 1:
        raise InputError((f"feature {spec.name!r}: expected one id for each example, (batch,), got {array.shape}",))
    return Ids(array, spec.num_ids, spec.embedding, spec.lifetime)


def joining_factors(
    ids: NDArray[np.int64], weights: NDArray[np.float32] | None, combiner: Combiner
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the ids to count, -1 for others, and the factors by which a combiner adds their rows.

    Examples
    --------
    >>> joining_factors(np.array([[4, -1, 2]]), np.float32([[1, 0, 3]]), "mean")
    (array([[ 4, -1,  2]]), array([[0.25, 0.  , 0.75]], dtype=float32))
    """
    counts = ids >= 0
    factors = counts.astype(np.float32) if weights is None else np.where(counts, weights, np.float32(0))
    if combiner != "sum":  # a divisor must not sum both signs
        counts &= factors > 0
        factors = np.where(counts, factors, np.float32(0))
    match combiner:
        case "sum":
            return np.where(counts, ids, -1), factors
        case "mean":
            divisor = factors.sum(axis=1, keepdims=True)
        case "sqrtn":
            divisor = np.sqrt((factors * factors).sum(axis=1, keepdims=True))
        case _:
            assert_never(combiner)
    joined = np.asarray(factors / np.where(divisor > 0, divisor, np.float32(1)), np.float32)
    return np.where(counts, ids, -1), joined


def _several_ids(array: NDArray[Any], spec: ArraySpec, named: Mapping[str, Any], combiner: Combiner | None) -> Ids:
    if array.shape[1:] != spec.shape:
        expected = f"(batch, {spec.shape[0]})"
        raise InputError((f"feature {spec.name!r}: expected ids of shape {expected}, got {array.shape}",))
    weights = np.asarray(named[spec.weights], np.float32) if spec.weights else None
    own: Combiner = COMBINERS[COMBINERS.index(spec.combiner)] if spec.embedding else "sum"
    ids, factors = joining_factors(array, weights, own if combiner is None else combiner)
    return Ids(ids, spec.num_ids, spec.embedding, spec.lifetime, factors)


def _numbers(array: NDArray[Any], name: str) -> NDArray[np.float32]:
    what = f"feature {name!r}" if name else "features"
    if array.dtype.kind not in "fiub":
        raise InputError((f"{what}: expected numbers, got {array.dtype}; encode them as numbers in input_fn",))
    if array.ndim not in (1, 2):
        raise InputError((f"{what}: expected an array of shape (batch, k), got {array.shape}; flatten each example",))
    return np.asarray(array if array.ndim == 2 else array[:, np.newaxis], np.float32)
