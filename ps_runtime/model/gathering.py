"""Rows taken to where their ids stand, and joined; plain numpy, unless autograd follows."""

from __future__ import annotations

from typing import Any

from psflow.ps_runtime.model.plain_rows import take, weighted_sum
from psflow.ps_runtime.tables.dedupe import Occurrences
from psflow.ps_runtime.tracing import plain

__all__ = ["gather", "pool"]


def gather(rows: Any, found: Occurrences) -> Any:
    """Do as `take` does."""
    if plain(rows) is rows:
        return take(rows, found)
    from psflow.ps_runtime.model import followed_rows  # imports autograd

    return followed_rows.gather(rows, found)


def pool(rows: Any, weights: Any, found: Occurrences, num_sums: int) -> Any:
    """Do as `weighted_sum` does."""
    if plain(rows) is rows and plain(weights) is weights:
        return weighted_sum(rows, weights, found, num_sums)
    from psflow.ps_runtime.model import followed_rows

    return followed_rows.pool(rows, weights, found, num_sums)
