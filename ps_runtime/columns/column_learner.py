"""Learns the feature of one column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.features import (
    Array,
    BucketIds,
    HashIds,
    IdentityIds,
    IsMissing,
    LogOnePlus,
    ManyIds,
    MinMax,
    Normalizer,
    Number,
    OneId,
    Single,
    Standard,
    ValueWeights,
    VocabularyIds,
)
from psflow.ps_runtime.columns.intents import Becomes, Intent
from psflow.ps_runtime.columns.lists import values_of
from psflow.ps_runtime.columns.near_numeric import NearNumericStrings
from psflow.ps_runtime.columns.options import as_text
from psflow.ps_runtime.columns.reading import Column, split_type
from psflow.ps_runtime.columns.statistics import Moments, Range, Reservoir, ValueCounts
from psflow.ps_runtime.columns.values import missing_rows, numbers_of
from psflow.ps_runtime.errors import CellError, InputError

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_EXACT = 2**24
"""float32 holds every whole number up to this one."""


class ColumnLearner:
    """Keeps the statistics that the feature of one column needs."""

    def __init__(self, intent: Intent, seed: int) -> None:
        self._intent = intent
        self._num_missing = 0
        self._num_values = 0
        is_plain = intent.becomes is Becomes.NUMBER and intent.options.normalize is None
        self._may_lose_digits = is_plain and "int64" in (intent.raw.type, intent.read_as)
        self._range = Range()
        self._moments = Moments()
        self._reservoir = Reservoir(seed, intent.name)
        self._counts = ValueCounts(intent.name)
        self._looks_for_numbers = intent.becomes.is_string and intent.read_as == "string" and intent.vocabulary is None
        self._near_numeric = NearNumericStrings()

    def update(self, array: pa.Array) -> None:
        """Add the column of a chunk, as it is read.

        Raises
        ------
        InputError
            If the vocabulary is too large.
        CellError
            If a number to learn from is infinite or cannot be normalized.
        """
        if self._intent.is_many:
            array = values_of(array).values
            self._num_values += len(array) - array.null_count
            if self._intent.becomes.is_string:
                self._update_strings(array, 0)
            return
        num_missing = int(np.count_nonzero(missing_rows(array)))
        self._num_missing += num_missing
        self._num_values += len(array) - num_missing
        if self._intent.becomes.is_string:
            self._update_strings(array, num_missing)
        elif self._intent.needs_anything or self._may_lose_digits or self._intent.options.normalize == "log1p":
            self._update_numbers(numbers_of(array))

    def _update_strings(self, array: pa.Array, num_missing: int) -> None:
        if self._looks_for_numbers:
            self._near_numeric.update(array)
        if not self._intent.needs_counts:
            return
        self._counts.update_strings(array)
        if self._intent.options.impute not in (None, "most_frequent"):
            self._counts.add([self._given_string()], [num_missing])  # the fill value is a string like any other

    def _update_numbers(self, numbers: NDArray[Any]) -> None:
        present = numbers
        if numbers.dtype.kind == "f" and (missing := np.isnan(numbers)).any():
            present = numbers[~missing]
        self._range.update(present)
        if self._intent.needs_anything and len(present) and math.isinf(self._range.largest):
            self._refuse(numbers, np.isinf(numbers), "a finite number to learn from")
        if self._intent.options.normalize == "log1p" and (low := numbers <= -1).any():
            self._refuse(numbers, low, "a number above -1 for log1p")
        if self._intent.needs_moments:
            self._moments.update(present)
        if self._intent.needs_quantiles:
            self._reservoir.update(present)
        if self._intent.needs_counts:
            self._counts.update_numbers(present)

    def _refuse(self, numbers: NDArray[Any], bad: NDArray[np.bool_], expected: str) -> None:
        row = int(np.argmax(bad))
        reason = f"expected {expected}, got {numbers[row].item()!r}"
        raise CellError(column=self._intent.name, row=row, reason=reason)

    @property
    def column(self) -> Column:
        """The column, with its counts."""
        loses_digits = self._may_lose_digits and self._num_values > 0 and self._range.largest > LARGEST_EXACT
        separator, looks_like = self._intent.options.separator, self._near_numeric.sentence
        return Column(self._intent.raw, self._intent.read_as, self._num_missing, loses_digits, looks_like, separator)

    def features(self) -> tuple[Single, ...]:
        """Return the features of the column.

        Raises InputError if all its values are missing although something is to be learned from them, or if they are
        too large.
        """
        if self._intent.needs_anything and not self._num_values:
            raise InputError(
                (f"column {self._intent.name!r} has only missing values: nothing can be learned; leave it out",)
            )
        feature = self._feature()
        options = self._intent.options
        if isinstance(feature, OneId) and options.max_values is not None:
            return (ManyIds(feature, options.max_values, options.combiner or "mean", options.weights),)
        return (feature, IsMissing(self._intent.name)) if self._intent.options.indicator else (feature,)

    def _feature(self) -> Single:
        intent, options = self._intent, self._intent.options
        match intent.becomes:
            case Becomes.NUMBER:
                return Number(intent.name, self._fill_number(), self._normalizer())
            case Becomes.ARRAY:
                return Array(intent.name, split_type(intent.raw.type)[1] or 0)
            case Becomes.VOCABULARY_IDS:
                vocabulary = self._counts.by_count() if intent.vocabulary is None else intent.vocabulary
                return VocabularyIds(
                    intent.name,
                    vocabulary,
                    self._fill_string(),
                    options.embedding,
                    intent.vocabulary is None,
                    options.lifetime,
                )
            case Becomes.HASH_IDS:
                assert options.hash_buckets is not None
                return HashIds(
                    intent.name, options.hash_buckets, self._fill_string(), options.embedding, options.lifetime
                )
            case Becomes.IDENTITY_IDS:
                assert options.num_ids is not None
                return IdentityIds(
                    intent.name, options.num_ids, self._fill_number(), options.embedding, options.lifetime
                )
            case Becomes.BUCKET_IDS:
                edges = self._learned_edges() if options.edges is None else options.edges
                return BucketIds(intent.name, edges, self._fill_number(), options.embedding, options.lifetime)
            case Becomes.VALUE_WEIGHTS:
                assert options.max_values is not None
                return ValueWeights(intent.name, options.max_values)
        assert_never(intent.becomes)

    def _normalizer(self) -> Normalizer | None:
        match self._intent.options.normalize:
            case None:
                return None
            case "log1p":
                return LogOnePlus()
            case "standard":
                deviation = 0.0 if self._range.is_constant else self._finite(self._moments.standard_deviation)
                return Standard(self._mean(), deviation)
            case "min_max":
                low, high = float(self._range.minimum), float(self._range.maximum)
                self._finite(high - low)
                return MinMax(low, high)
            case _:
                assert_never(self._intent.options.normalize)

    def _fill_number(self) -> float | None:
        match self._intent.options.impute:
            case None:
                return None
            case "mean":
                return self._mean()
            case "median":
                return float(self._reservoir.quantiles([0.5])[0])
            case "most_frequent":
                return float(self._counts.by_count()[0])
            case value:
                return float(value)

    def _fill_string(self) -> str | None:
        match self._intent.options.impute:
            case None:
                return None
            case "most_frequent":
                known = self._intent.vocabulary
                found = (string for string in self._counts.by_count() if known is None or string in known)
                string: str | None = next(found, None)
                if string is None:
                    raise InputError(
                        (
                            f"column {self._intent.name!r} has no value of its vocabulary, so no value is the "
                            "most frequent; set impute to a value of the vocabulary",
                        )
                    )
                return string
            case _:
                return self._given_string()

    def _given_string(self) -> str:
        assert self._intent.options.impute is not None
        return as_text(self._intent.options.impute)

    def _learned_edges(self) -> tuple[float, ...]:
        """Return the distinct inner quantiles that have values below them."""
        num_buckets = self._intent.options.quantiles
        assert num_buckets is not None
        edges = np.unique(self._reservoir.quantiles(np.arange(1, num_buckets) / num_buckets))
        return tuple(edges[edges > self._range.minimum].tolist())

    def _mean(self) -> float:
        """Return the mean, which is exact for a constant column."""
        if self._range.is_constant:
            return float(self._range.minimum)
        return self._finite(self._moments.mean)

    def _finite(self, learned: float) -> float:
        if math.isfinite(learned):
            return learned
        raise InputError(
            (f"column {self._intent.name!r} has numbers up to {self._range.largest:g}: too large to normalize",)
        )
