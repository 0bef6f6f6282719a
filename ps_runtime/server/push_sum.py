"""The gradients of one round of synchronous training, summed as they come."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.specs.layout import ShardLayout
from ps_runtime.tables.dedupe import find_occurrences
from ps_runtime.transport.payloads import PushBuffer

__all__ = ["PushSum", "RowGradients"]

RowGradients = list[tuple[NDArray[np.int64], NDArray[Any]]]
"""Of each table of the model: ids, each once, and their gradients ``(n, dim)``."""


class PushSum:
    """A running sum of pushes to one shard.

    Parameters
    ----------
    layout : ShardLayout
    """

    def __init__(self, layout: ShardLayout) -> None:
        self._groups = [group for group in layout.groups if group.optimizer is not None]
        self._trained = [p for p in layout.pieces if p.offset + p.nbytes <= layout.gradient_nbytes]
        self._sum: PushBuffer | None = None
        self._rows: list[RowGradients] = []

    def add(self, push: PushBuffer) -> None:
        """Add the gradients of a push; a variable that it has none of counts as zero. Changes `push`."""
        if not push.mask.all():
            for piece, is_present in zip(self._trained, push.mask, strict=True):
                if not is_present:
                    push.gradients[piece.offset : piece.offset + piece.nbytes] = 0
        if self._sum is None:
            self._sum = push.copy()
            self._rows = [self._sum.rows()]
            return
        self._rows.append([(ids.copy(), values.copy()) for ids, values in push.rows()])
        np.bitwise_or(self._sum.mask, push.mask, out=self._sum.mask)
        for group in self._groups:
            total = self._sum.gradients[group.start : group.stop].view(group.dtype)
            np.add(total, push.gradients[group.start : group.stop].view(group.dtype), out=total)

    def mean(self, num_gradients: int) -> tuple[PushBuffer, RowGradients]:
        """Return the sum divided by `num_gradients`, at the learning rates of the first push, and begin anew."""
        assert self._sum is not None
        assert len(self._rows) == num_gradients
        mean, self._sum = self._sum, None
        for group in self._groups:
            total = mean.gradients[group.start : group.stop].view(group.dtype)
            np.divide(total, num_gradients, out=total)
        return mean, [_mean_rows(of_table, num_gradients) for of_table in zip(*self._rows, strict=True)]


def _mean_rows(
    parts: tuple[tuple[NDArray[np.int64], NDArray[Any]], ...], num_gradients: int
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    found = find_occurrences(np.concatenate([ids for ids, _ in parts]))
    values = found.sum(np.concatenate([values for _, values in parts]))
    np.divide(values, num_gradients, out=values)
    return found.unique, values
