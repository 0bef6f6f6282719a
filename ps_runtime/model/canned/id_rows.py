"""A row of weights for each id of a feature.

Up to `MAX_DENSE_IDS` ids, the rows are a variable, all of which travels with each step. Of more ids they are a sparse
table: then only the rows of a batch travel.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from psflow.ps_runtime.initializers import normal, zeros
from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS, Ids
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
    if ids.num_ids > MAX_DENSE_IDS:
        rows = embedding_lookup(name, ids.values, ids.num_ids, dim, initializer=initializer, scale=stddev)
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
    if ids.num_ids > MAX_DENSE_IDS:
        return SparseGradient(ids.values, gradient)
    dim = gradient.shape[1]
    places = ids.values.astype(np.intp)[:, np.newaxis] * dim + np.arange(dim)
    summed: FloatArray = gradient_buffer(name)
    summed[...] = np.bincount(places.ravel(), gradient.ravel(), ids.num_ids * dim).reshape(ids.num_ids, dim)
    return summed
