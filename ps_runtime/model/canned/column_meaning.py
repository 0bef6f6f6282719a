"""What feature columns mean, in words that a checkpoint holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from psflow.ps_runtime.feature_columns.kinds import FeatureColumn
from psflow.ps_runtime.specs.column_spec import ColumnSpec

__all__ = ["column_specs"]

HOW_IT_IS_LEARNED = frozenset({"initializer", "combiner", "trainable"})
MAX_SHOWN = 200
"""Characters of a value; of longer ones there is a digest."""


def column_specs(layer: str, columns: Iterable[FeatureColumn]) -> tuple[ColumnSpec, ...]:
    """Return what the columns of a layer mean, in the sorted order of their names.

    Of a normalizer_fn it says that there is one: two functions cannot be compared.
    """
    return tuple(
        ColumnSpec(layer, column.name, tuple(sorted(_facts(column, ""))))
        for column in sorted(columns, key=lambda column: column.name)
    )


def _facts(value: Any, where: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(value):
        yield f"{where}kind", type(value).__name__
        for field in fields(value):
            if field.name not in HOW_IT_IS_LEARNED:
                yield from _facts(getattr(value, field.name), f"{where}{field.name}.")
    elif isinstance(value, tuple) and any(map(is_dataclass, value)):
        for place, item in enumerate(value):
            yield from _facts(item, f"{where}{place}.")
    else:
        yield where.rstrip("."), "a function" if callable(value) else _shown(value)


def _shown(value: Any) -> str:
    text = repr(value)
    if len(text) <= MAX_SHOWN:
        return text
    of_all = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    length = f"{len(value)} values" if isinstance(value, tuple) else f"{len(text)} characters"
    return f"{length} of the digest {of_all}"
