"""A row of weights for each id of a feature.

Few ids have a variable of rows, all of which travels with each step. Many have a sparse table (`Ids.is_table`): then
only the rows of a batch travel, and they live as long as the schema says.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from psflow.ps_runtime.initializers import normal, zeros
from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.model.canned.features import Ids
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.gradient_buffer import gradient_buffer
from psflow.ps_runtime.model.scope import get_variable
from psflow.ps_runtime.model.sparse import SparseGradient

__all__ = ["look_up", "rows_gradient"]


def look_up(name: str, ids: Ids, dim: int, initializer: Literal["zeros", "normal"]) -> FloatArray:
    """Return the row of each example's id.

    Parameters
    ----------
    name : str
        Of the variable ``(num_ids, dim)``, or of the sparse table.
    ids : Ids
        Of a batch.
    dim : int
        Length of a row.
    initializer : {"zeros", "normal"}
        First values; normal with standard deviation ``1 / sqrt(dim)``.

    Returns
    -------
    (batch, dim) array
    """
    rows: FloatArray
    stddev = dim**-0.5
    if ids.is_table:
        rows = embedding_lookup(
            name,
            ids.values,
            ids.num_ids,
            dim,
            initializer=initializer,
            scale=stddev,
            admit_after=ids.lifetime.admit_after,
            expire_after_steps=ids.lifetime.expire_after_steps,
        )
        return rows
    first = {"zeros": zeros, "normal": normal(stddev=stddev)}[initializer]
    weights: FloatArray = get_variable(name, (ids.num_ids, dim), initializer=first)
    rows = weights[ids.values]
    return rows


def rows_gradient(name: str, ids: Ids, gradient: FloatArray) -> FloatArray | SparseGradient:
    """Return the gradient of the variable or table that `look_up` read: that of an id is the sum over its examples.

    Parameters
    ----------
    name, ids
        As `look_up` was given.
    gradient : (batch, dim)
        Of the loss with respect to what `look_up` returned.
    """
    if ids.is_table:
        return SparseGradient(ids.values, gradient)
    dim = gradient.shape[1]
    places = ids.values.astype(np.intp)[:, np.newaxis] * dim + np.arange(dim)
    summed: FloatArray = gradient_buffer(name)
    summed[...] = np.bincount(places.ravel(), gradient.ravel(), ids.num_ids * dim).reshape(ids.num_ids, dim)
    return summed
