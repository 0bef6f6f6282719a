"""Flattens the sequences of a batch to a row for each step, so that columns are computed as for examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.feature_columns.kinds import (
    NumericColumn,
    SequenceDenseColumn,
    SequenceNumericColumn,
    ids_column,
)
from psflow.ps_runtime.feature_columns.raw_features import RawFeatures
from psflow.ps_runtime.feature_columns.transforming import Transformation


@dataclass(frozen=True, slots=True, eq=False)
class SequenceSteps:
    """The steps of one feature of a batch."""

    transformation: Transformation
    present: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each sequence up to the last one with a value, ``(batch,)``."""
        ends = np.arange(1, self.present.shape[1] + 1) * self.present
        return np.asarray(ends.max(axis=1, initial=0), np.int64)


class SequenceTransformation:
    """Finds the steps of the features of one batch, each once."""

    def __init__(self, features: Any) -> None:
        self._raw = RawFeatures(features)
        self._known: dict[tuple[str, tuple[int, ...] | None], tuple[Transformation, tuple[int, int]]] = {}

    def steps(self, column: SequenceDenseColumn) -> SequenceSteps:
        """Return the steps of the feature that a column reads.

        Raises InputError if the feature is missing, or does not suit the column.
        """
        if isinstance(column, SequenceNumericColumn):
            transformation, shape = self._flat(column.key, column.shape)
            missing = transformation.missing(column.key)
            present = ~missing.all(axis=tuple(range(1, missing.ndim)))
        else:
            of_ids = ids_column(column)
            transformation, shape = self._flat(of_ids.name, None)
            present = transformation.ids(of_ids).present.any(axis=1)
        return SequenceSteps(transformation, present.reshape(shape))

    def numbers(self, column: SequenceNumericColumn) -> NDArray[np.float32]:
        """Return the numbers of the steps, ``(batch * length, width)``, with the default for missing values.

        Raises InputError or ModelFnError as `Transformation.numbers` does.
        """
        transformation, _ = self._flat(column.key, column.shape)
        plain = NumericColumn(column.key, column.shape, None, column.dtype, column.normalizer_fn)
        numbers = transformation.numbers(plain)
        missing = transformation.missing(column.key).reshape(numbers.shape)
        return np.where(missing, np.float32(column.default_value), numbers)

    def _flat(self, key: str, of_step: tuple[int, ...] | None) -> tuple[Transformation, tuple[int, int]]:
        if (key, of_step) not in self._known:
            array, shape = self._raw.steps(key, of_step)
            self._known[key, of_step] = Transformation({key: array}), shape
        return self._known[key, of_step]


def common_lengths(lengths: dict[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the lengths that the sequences of all columns share.

    Raises
    ------
    InputError
        Names the first example whose sequences differ in length.
    """
    (first, expected), *others = lengths.items()
    for name, found in others:
        if len(found) != len(expected):
            raise InputError((f"{name!r} has {len(found)} sequences, but {first!r} has {len(expected)}",))
        if (differ := found != expected).any():
            row = int(np.argmax(differ))
            steps = f"{name!r} has {found[row]} steps in row {row} of the batch, but {first!r} has {expected[row]}"
            raise InputError((f"{steps}; the columns of a layer need sequences of equal length",))
    return expected
