"""The gradients of one round of synchronous training, summed as they come."""

from __future__ import annotations

import numpy as np

from ps_runtime.specs.layout import ShardLayout
from ps_runtime.transport.payloads import PushBuffer, PushLayout

__all__ = ["PushSum"]


class PushSum:
    """A running sum of pushes to one shard.

    Parameters
    ----------
    layout : ShardLayout
    push_layout : PushLayout
    """

    def __init__(self, layout: ShardLayout, push_layout: PushLayout) -> None:
        self._push_layout = push_layout
        self._groups = [group for group in layout.groups if group.optimizer is not None]
        self._trained = [p for p in layout.pieces if p.offset + p.nbytes <= layout.gradient_nbytes]
        self._sum: PushBuffer | None = None
        self._num_summed = 0

    def add(self, push: PushBuffer) -> None:
        """Add the gradients of a push; a variable that it has none of counts as zero. Changes `push`."""
        if not push.mask.all():
            for piece, is_present in zip(self._trained, push.mask, strict=True):
                if not is_present:
                    push.gradients[piece.offset : piece.offset + piece.nbytes] = 0
        if self._sum is None:
            self._sum = PushBuffer(self._push_layout)
        self._num_summed += 1
        if self._num_summed == 1:
            np.copyto(self._sum.bytes, push.bytes)
            return
        np.bitwise_or(self._sum.mask, push.mask, out=self._sum.mask)
        for group in self._groups:
            total = self._sum.gradients[group.start : group.stop].view(group.dtype)
            np.add(total, push.gradients[group.start : group.stop].view(group.dtype), out=total)

    def mean(self, num_gradients: int) -> PushBuffer:
        """Return the sum divided by `num_gradients`, at the learning rates of the first, and begin anew.

        Valid until the next `add`.
        """
        assert self._sum is not None
        assert self._num_summed == num_gradients
        for group in self._groups:
            total = self._sum.gradients[group.start : group.stop].view(group.dtype)
            np.divide(total, num_gradients, out=total)
        self._num_summed = 0
        return self._sum
