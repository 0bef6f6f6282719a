"""Lifetimes of rows that an input asks for, held against the sparse tables of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from psflow.ps_runtime.columns.row_lifetime import RowLifetime
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.tables import TableSpec

__all__ = ["unused_lifetimes"]


def unused_lifetimes(schema: InputSchema, tables: Iterable[TableSpec]) -> Iterator[str]:
    """Say which features have a lifetime that no table of the model has: it would have no effect."""
    found = {RowLifetime(table.admit_after, table.expire_after_steps) for table in tables}
    for spec in schema.features:
        if spec.lifetime.is_limited and spec.lifetime not in found:
            yield (
                f"feature {spec.name!r} has {spec.lifetime}, but model_fn looks up no sparse table with that lifetime; "
                "give it to embedding_lookup as admit_after and expire_after_steps, or leave it out of the input"
            )
