"""Sums the gradients of one round of synchronous training as they arrive."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.optimizers.base import FloatArray
from psflow.ps_runtime.protocol.payloads import PushBuffer, PushLayout
from psflow.ps_runtime.specs.layout import ShardLayout
from psflow.ps_runtime.tables.duplicate_ids import find_occurrences

RowGradients = list[tuple[NDArray[np.int64], NDArray[Any]]]
"""Of each table of the model: ids, each once, and their gradients ``(n, dim)``."""


class PushSum:
    """A running sum of pushes to one shard."""

    def __init__(self, layout: ShardLayout, num_optimizers: int) -> None:
        self._groups = [group for group in layout.groups if group.optimizer is not None]
        self._trained = [p for p in layout.pieces if p.offset + p.nbytes <= layout.gradient_nbytes]
        self._push_layout = PushLayout.of(layout, num_optimizers)
        self._rows: list[RowGradients] = []

    def add(self, push: PushBuffer) -> None:
        """Add the gradients of a push; a variable without one counts as zero. Changes `push`."""
        if not push.mask.all():
            for piece, is_present in zip(self._trained, push.mask, strict=True):
                if not is_present:
                    push.gradients[piece.offset : piece.offset + piece.nbytes] = 0
        total = self._total
        if self._rows:
            np.bitwise_or(total.mask, push.mask, out=total.mask)
            for mine, theirs in zip(self._views(total), self._views(push), strict=True):
                np.add(mine, theirs, out=mine)
        else:
            np.copyto(total.mask, push.mask)
            np.copyto(total.learning_rates, push.learning_rates)
            np.copyto(total.gradients, push.gradients)
        self._rows.append([(ids, values.copy()) for ids, values in push.rows()])

    @property
    def num_gradients(self) -> int:
        """The number of pushes in the sum."""
        return len(self._rows)

    def mean(self) -> tuple[PushBuffer, RowGradients]:
        """Return the mean of one push or more, at the learning rates of the first, and reset the sum.

        It is valid until the next `add`.
        """
        parts, self._rows = self._rows, []
        num_gradients = len(parts)
        for view in self._views(self._total):
            np.divide(view, num_gradients, out=view)
        return self._total, [_mean_rows(of_table, num_gradients) for of_table in zip(*parts, strict=True)]

    @cached_property
    def _total(self) -> PushBuffer:  # allocates memory only where there is something to sum
        return PushBuffer.empty(self._push_layout)

    def _views(self, push: PushBuffer) -> list[FloatArray]:
        return [push.gradients_of(group) for group in self._groups]


def _mean_rows(
    parts: tuple[tuple[NDArray[np.int64], NDArray[Any]], ...], num_gradients: int
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    found = find_occurrences(np.concatenate([ids for ids, _ in parts]))
    values = found.sum(np.concatenate([values for _, values in parts]))
    np.divide(values, num_gradients, out=values)
    return found.unique, values
