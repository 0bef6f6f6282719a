"""Which of some ids lie on which shard: found once for a pull and the push that answers it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Splits"]

Ids = NDArray[np.int64]

_NUM_KNOWN = 64


class Splits:
    """Splits arrays of ids over shards, and remembers those of late.

    Notes
    -----
    Not thread-safe. An array is known by its identity: it must not change.
    """

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards
        self._known: dict[int, tuple[Ids, tuple[Any, ...]]] = {}

    def __len__(self) -> int:
        return self._num_shards

    def of(self, ids: Ids) -> tuple[Any, ...]:
        """Return for each shard which of ``(n,)`` `ids` lie on it: an index for them and their rows.

        Examples
        --------
        >>> Splits(2).of(np.array([4, 7, 8]))
        (array([0, 2]), array([1]))
        """
        if self._num_shards == 1:
            return (slice(None),)
        known = self._known.get(id(ids))  # `known` holds its array, so that no other can have this id
        if known is None or known[0] is not ids:
            if len(self._known) >= _NUM_KNOWN:
                self._known.clear()
            known = self._known[id(ids)] = (ids, self._split(ids))
        return known[1]

    def _split(self, ids: Ids) -> tuple[NDArray[np.intp], ...]:
        shards = ids - ids // self._num_shards * self._num_shards  # four times as fast as a remainder
        return tuple(np.flatnonzero(shards == shard) for shard in range(self._num_shards))
