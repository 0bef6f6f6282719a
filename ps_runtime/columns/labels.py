"""Learns labels and weights from one column, and computes them for every input in the same way."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.computing import vocabulary_ids
from psflow.ps_runtime.columns.features import FeatureSpec, Standard
from psflow.ps_runtime.columns.near_numeric import NearNumericStrings
from psflow.ps_runtime.columns.options import LabelOptions
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import NUMBERS, Column, read_column
from psflow.ps_runtime.columns.statistics import Moments, Range, ValueCounts
from psflow.ps_runtime.columns.values import missing_rows, numbers_of
from psflow.ps_runtime.errors import CellError, InputError, UsageError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_WHOLE = 2.0**53
"""Every float64 beyond this number is whole."""


@dataclass(frozen=True)
class Label:
    """The kind of labels, as learned."""

    column: Column
    dtype: str
    classes: tuple[str, ...] | None = None
    normalizer: Standard | None = None

    @property
    def spec(self) -> FeatureSpec:
        """Name, dtype and shape, and the number of classes if there are classes."""
        return FeatureSpec(self.column.name, self.dtype, (), None if self.classes is None else len(self.classes))

    def named(self, name: str) -> Label:
        """Return the same labels, read from a column of another name."""
        return replace(self, column=replace(self.column, raw=RawColumn(name, self.column.raw.type)))

    @functools.cached_property
    def class_array(self) -> pa.Array:
        """The classes as pyarrow looks them up."""
        import pyarrow as pa

        return pa.array(self.classes, pa.string())

    def apply(self, table: pa.Table) -> NDArray[Any]:
        """Return the labels of all rows.

        Raises
        ------
        InputError
            If the column is missing or of another type.
        CellError
            If a label is missing, is not a class, or is a fraction although all others were whole.
        """
        array = read_column(table, self.column)
        if (missing := missing_rows(array)).any():
            raise CellError(
                column=self.column.name,
                row=int(np.argmax(missing)),
                reason="expected a label, got a missing value; correct it, or leave the row out",
            )
        if self.classes is not None:
            return self.class_ids(array)
        numbers = numbers_of(array)
        if self.dtype == "int64" and not (whole := _is_whole(numbers)).all():
            row = int(np.argmin(whole))
            raise CellError(
                column=self.column.name,
                row=row,
                reason=f"expected a whole number, as all labels of the training input, got {numbers[row].item()!r}",
            )
        with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite
            return numbers.astype(self.dtype)

    def class_ids(self, array: pa.Array) -> NDArray[np.int64]:
        """Return the class ids; those of missing values are meaningless."""
        assert self.classes is not None
        ids = vocabulary_ids(array, self.column.name, self.class_array, fill=0)
        if (unknown := ids == len(self.classes)).any():
            row = int(np.argmax(unknown))
            got = array[row].as_py()
            shown = ", ".join(map(repr, self.classes[:10])) + (", ..." if len(self.classes) > 10 else "")
            raise CellError(
                column=self.column.name,
                row=row,
                reason=f"{got!r} is not a class, expected {shown}{did_you_mean(str(got), self.classes)}",
            )
        return ids


class LabelLearner:
    """Learns labels from the chunks of the training input.

    Raises UsageError if a column of this type cannot hold labels, or cannot be normalized.
    """

    def __init__(self, raw: RawColumn, options: LabelOptions) -> None:
        if raw.type not in (*NUMBERS, "string", "bool"):
            raise UsageError((f"the label {raw.name!r} is {raw.type}, expected numbers, strings or booleans",))
        if options.normalize is not None and raw.type not in NUMBERS:
            raise UsageError((f"the label {raw.name!r} is {raw.type}, expected numbers to normalize",))
        self.column = Column(raw, "float64" if raw.type in NUMBERS else raw.type)
        self._given = None if options.words is None else Label(self.column, "int64", options.words)
        learns_classes = options.classes == "auto" or (options.classes is None and raw.type == "string")
        self._counts = ValueCounts(raw.name) if learns_classes else None
        self._near_numeric = NearNumericStrings()
        self._is_whole = True
        self._moments = None if options.normalize is None else Moments()
        self._range = Range()
        self._num_missing = 0
        self._num_labels = 0

    def update(self, array: pa.Array) -> None:
        """Add the column of a chunk, as it is read; missing values are only counted.

        Raises CellError if a label is infinite, or not one of the classes.
        """
        missing = missing_rows(array)
        self._num_missing += int(missing.sum())
        self._num_labels += int((~missing).sum())
        if self._counts is not None:
            self._counts.update_strings(array)
            if self.column.read_as == "string":
                self._near_numeric.update(array)
        elif self._given is not None:
            self._given.class_ids(array)
        else:
            self._update_numbers(numbers_of(array), missing)

    def _update_numbers(self, numbers: NDArray[Any], missing: NDArray[np.bool_]) -> None:
        if (infinite := np.isinf(numbers)).any():
            reason = "expected a finite number as label, got an infinite one"
            raise CellError(column=self.column.name, row=int(np.argmax(infinite)), reason=reason)
        self._is_whole = self._is_whole and bool((missing | _is_whole(numbers)).all())
        if self._moments is not None:
            self._moments.update(numbers[~missing])
            self._range.update(numbers[~missing])

    def finish(self) -> Label:
        """Return the learned labels.

        Raises InputError if there is no label, or the labels are too large to normalize.
        """
        if not self._num_labels:
            raise InputError((f"the label {self.column.name!r} has only missing values",))
        column = replace(self.column, num_missing=self._num_missing, looks_like=self._near_numeric.sentence)
        if self._given is not None:
            return replace(self._given, column=column)
        if self._counts is not None:
            counts = self._counts.counts
            return Label(column, "int64", tuple(sorted(counts, key=int if column.raw.type in NUMBERS else str)))
        return Label(column, "int64" if self._is_whole else "float32", normalizer=self._normalizer())

    def _normalizer(self) -> Standard | None:
        if self._moments is None:
            return None
        mean, deviation = self._moments.mean, self._moments.standard_deviation
        if not math.isfinite(mean + deviation):
            raise InputError(
                (f"the label {self.column.name!r} has numbers up to {self._range.largest:g}: too large to normalize",)
            )
        is_constant = self._range.is_constant  # rounding can make its deviation greater than 0
        return Standard(float(self._range.minimum), 0.0) if is_constant else Standard(mean, deviation)


def weights_of(table: pa.Table, column: Column) -> NDArray[np.float32]:
    """Return the weights of all rows.

    Raises
    ------
    InputError
        If the column is missing or of another type.
    CellError
        If a weight is missing, negative or infinite.
    """
    numbers = numbers_of(read_column(table, column))
    with np.errstate(over="ignore"):
        weights = numbers.astype(np.float32)
    if (good := (weights >= 0) & np.isfinite(weights)).all():
        return weights
    row = int(np.argmin(good))
    reason = f"expected a weight, a finite number >= 0, got {numbers[row].item()!r}"
    raise CellError(column=column.name, row=row, reason=reason)


def _is_whole(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which numbers int64 holds exactly."""
    if numbers.dtype.kind != "f":
        return np.ones(len(numbers), np.bool_)
    return np.asarray((numbers == np.floor(numbers)) & (np.abs(numbers) <= LARGEST_WHOLE))
