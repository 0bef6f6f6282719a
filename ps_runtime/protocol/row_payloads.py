"""Ids and rows of sparse tables, as they travel: plain int64 and the tables' own dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ProtocolError
from psflow.ps_runtime.specs.tables import TableSpec

__all__ = ["MAX_ROWS", "RowLayout"]

MAX_ROWS = 1 << 22
"""Most ids of one table in one message."""

_WORD = 8


@dataclass(frozen=True)
class RowLayout:
    """How rows of a model's tables lie in a body.

    Ids are ``[number of ids of each table | ids of the first table | ...]``, and values are
    ``[(n, dim) of the first table | ...]``, each table's at a multiple of 8 bytes.
    """

    tables: tuple[TableSpec, ...]

    def ids_nbytes(self, counts: Sequence[int]) -> int:
        """Return the size of ids, so many of each table."""
        return _WORD * (len(self.tables) + sum(counts))

    def values_nbytes(self, counts: Sequence[int]) -> int:
        """Return the size of the rows' values, so many of each table."""
        return sum([_padded(nbytes * n) for nbytes, n in zip(self._rows_nbytes, counts, strict=True)])

    def max_nbytes(self, num_shards: int) -> int:
        """Return the largest size that ids and values together may have, to or from one of `num_shards` shards."""
        counts = self.max_counts(num_shards)
        return self.ids_nbytes(counts) + self.values_nbytes(counts)

    def max_counts(self, num_shards: int) -> list[int]:
        """Return how many rows of each table one message may have, to or from one of `num_shards` shards."""
        return [min(MAX_ROWS, math.ceil(table.num_rows / num_shards)) for table in self.tables]

    def write_ids(self, body: NDArray[np.uint8], ids: Sequence[NDArray[np.int64]]) -> int:
        """Write the ids of each table to the beginning of `body`; return where they end."""
        words = body[: self.ids_nbytes([len(some) for some in ids])].view(np.int64)
        words[: len(ids)] = [len(some) for some in ids]
        at = len(ids)
        for some in ids:
            words[at : at + len(some)] = some
            at += len(some)
        return at * _WORD

    def read_ids(self, body: NDArray[np.uint8]) -> tuple[list[NDArray[np.int64]], int]:
        """Return the ids of each table at the beginning of `body`, and where they end.

        The ids are copies: they decide where rows are read and written, and `body` may be memory of the peer.

        Raises
        ------
        ProtocolError
            If there are not as many as the body says.
        """
        num_tables = len(self.tables)
        if len(body) < _WORD * num_tables:
            raise ProtocolError("peer", f"{len(body)} bytes cannot hold ids of {num_tables} tables")
        counts = body[: _WORD * num_tables].view(np.int64).tolist()
        if any(not 0 <= n <= MAX_ROWS for n in counts) or len(body) < self.ids_nbytes(counts):
            raise ProtocolError("peer", f"{len(body)} bytes cannot hold {counts} ids")
        ids, at = [], num_tables * _WORD
        for n in counts:
            ids.append(body[at : at + n * _WORD].view(np.int64).copy())
            at += n * _WORD
        return ids, at

    def values(self, body: NDArray[np.uint8], counts: Sequence[int]) -> list[NDArray[Any]]:
        """Return views ``(n, dim)`` of the values of each table, which fill `body`.

        Raises
        ------
        ProtocolError
            If they do not fill it.
        """
        if len(body) != self.values_nbytes(counts):
            raise ProtocolError("peer", f"expected {self.values_nbytes(counts)} bytes of rows, got {len(body)}")
        views, at = [], 0
        for table, row_nbytes, n in zip(self.tables, self._rows_nbytes, counts, strict=True):
            nbytes = row_nbytes * n
            views.append(body[at : at + nbytes].view(table.dtype).reshape(n, table.dim))
            at += _padded(nbytes)
        return views

    @cached_property
    def _rows_nbytes(self) -> tuple[int, ...]:
        return tuple(table.row_nbytes for table in self.tables)


def _padded(nbytes: int) -> int:
    return -(-nbytes // _WORD) * _WORD
