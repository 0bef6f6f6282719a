"""A row of weights for each id of a feature.

Few ids have a variable of rows, all of which travels with each step. Many have a sparse table (`Ids.is_table`): then
only the rows of a batch travel, and they live as long as the schema says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.row_lifetime import UNLIMITED, RowLifetime
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.initializers import Initializer, of_table
from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.model.canned.features import MAX_DENSE_IDS, Ids
from psflow.ps_runtime.model.embedding import embedding_lookup
from psflow.ps_runtime.model.gradient_buffer import gradient_buffer
from psflow.ps_runtime.model.scope import get_variable
from psflow.ps_runtime.model.sparse import SparseGradient
from psflow.ps_runtime.tracing import numpy_of, plain

__all__ = ["IdRows"]


@dataclass(frozen=True, slots=True)
class IdRows:
    """The rows of the ids of one feature, or of several that share them."""

    name: str
    num_ids: int
    dim: int
    initializer: Initializer = field(compare=False)
    trainable: bool = True
    max_norm: float | None = None
    lifetime: RowLifetime = UNLIMITED

    def look_up(self, ids: Ids) -> Any:
        """Return the row of each example's id, or the sum of its rows by their factors."""
        if ids.factors is None and self.max_norm is None:
            return self._rows(ids.values)
        values, factors = _with_axis(ids)
        present = values >= 0
        rows = self._shortened(self._rows(values[present]))
        places = np.full(values.shape, int(present.sum()))
        places[present] = np.arange(len(rows))
        np_ = numpy_of(rows)
        padded = np_.concatenate([rows, np.zeros((1, self.dim), np.float32)])  # what is absent is the last row
        return np_.sum(padded[places] * factors[:, :, np.newaxis], axis=1)

    def gradient(self, parts: Sequence[tuple[Ids, FloatArray]]) -> FloatArray | SparseGradient:
        """Return the gradient of the variable or table: that of an id is the sum over where it was looked up."""
        each = [self._of_each_id(ids, gradient) for ids, gradient in parts]
        if self.num_ids > MAX_DENSE_IDS:
            summed = [SparseGradient(ids, gradients) for ids, gradients in each]
            return sum(summed[1:], start=summed[0])
        places = np.concatenate(
            [ids.astype(np.intp)[:, np.newaxis] * self.dim + np.arange(self.dim) for ids, _ in each]
        )
        gradients = np.concatenate([gradients for _, gradients in each])
        dense: FloatArray = gradient_buffer(self.name)
        counted = np.bincount(places.ravel(), gradients.ravel(), self.num_ids * self.dim)
        dense[...] = counted.reshape(self.num_ids, self.dim)
        return dense

    def _of_each_id(self, ids: Ids, gradient: FloatArray) -> tuple[NDArray[np.integer[Any]], FloatArray]:
        """Return the ids that are there, and the gradient of the row of each."""
        if ids.factors is None and self.max_norm is None:
            return ids.values, gradient
        values, factors = _with_axis(ids)
        present = values >= 0
        examples, _ = np.nonzero(present)
        of_rows: FloatArray = gradient[examples] * factors[present][:, np.newaxis]
        if self.max_norm is None:
            return values[present], of_rows
        rows = self._rows(values[present])
        norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
        # d(m r / |r|) takes from the gradient what points along r
        along = rows * ((rows * of_rows).sum(axis=1, keepdims=True) / np.maximum(norms * norms, self.max_norm**2))
        is_long = norms > self.max_norm
        return values[present], np.where(
            is_long, (of_rows - along) * (self.max_norm / np.maximum(norms, 1e-30)), of_rows
        )

    def _rows(self, ids: NDArray[np.integer[Any]]) -> Any:
        """Return a row for each id, as it is stored."""
        if self.num_ids <= MAX_DENSE_IDS:
            shape = (self.num_ids, self.dim)
            return get_variable(self.name, shape, initializer=self.initializer, trainable=self.trainable)[ids]
        known = of_table(self.initializer)
        if known is None:
            raise ModelFnError(
                (
                    f"{self.name!r} has {self.num_ids} rows, which are a sparse table: expected an initializer that is "
                    "normal(stddev=...), uniform(low=-x, high=x), constant(x) or zeros",
                )
            )
        kind, scale = known
        rows = embedding_lookup(
            self.name,
            ids,
            self.num_ids,
            self.dim,
            initializer=kind,
            scale=scale,
            admit_after=self.lifetime.admit_after,
            expire_after_steps=self.lifetime.expire_after_steps,
        )
        return rows if self.trainable else plain(rows)

    def _shortened(self, rows: Any) -> Any:
        if self.max_norm is None:
            return rows
        np_ = numpy_of(rows)
        squares = np_.sum(rows * rows, axis=1, keepdims=True)
        is_long = plain(squares) > self.max_norm**2
        # the root of what is replaced has no gradient that could be infinite
        return rows * np_.where(is_long, self.max_norm / np_.sqrt(np_.where(is_long, squares, 1.0)), 1.0)


def _with_axis(ids: Ids) -> tuple[NDArray[np.integer[Any]], NDArray[np.float32]]:
    """Return ids and factors as ``(batch, n)``."""
    if ids.factors is not None:
        return ids.values, ids.factors
    return ids.values[:, np.newaxis], np.ones((len(ids.values), 1), np.float32)
