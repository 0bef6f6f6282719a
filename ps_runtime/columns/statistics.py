"""Statistics of one column in one pass and bounded memory, independent of its chunks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.options import MAX_VOCABULARY
from psflow.ps_runtime.columns.values import unique_strings
from psflow.ps_runtime.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

RESERVOIR_SIZE = 100_000

MAX_STRING_LENGTH = 1000
"""Characters of a string of a vocabulary."""


class Range:
    """The smallest and the largest number."""

    def __init__(self) -> None:
        self.minimum: float = math.inf
        self.maximum: float = -math.inf

    def update(self, numbers: NDArray[Any]) -> None:
        """Add finite numbers (n,)."""
        if len(numbers):
            self.minimum = min(self.minimum, numbers.min().item())
            self.maximum = max(self.maximum, numbers.max().item())

    @property
    def is_constant(self) -> bool:
        """Whether all numbers are equal."""
        return self.minimum == self.maximum

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.minimum), abs(self.maximum))


class Moments:
    """Mean and population standard deviation in float64, combined from those of chunks.

    References
    ----------
    Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0
        """Sum of squared distances from the mean."""

    def update(self, numbers: NDArray[Any]) -> None:
        """Add finite numbers (n,)."""
        if not len(numbers):
            return
        with np.errstate(over="ignore", invalid="ignore"):  # the caller rejects a result that is not finite
            mean = float(np.mean(numbers, dtype=np.float64))
            centered = np.subtract(numbers, mean, dtype=np.float64)
            squares = float(np.square(centered, out=centered).sum())
            total = self.count + len(numbers)
            difference = mean - self.mean
            self._squares += squares + difference * difference * (self.count * len(numbers) / total)
            self.mean += difference * (len(numbers) / total)
            self.count = total

    @property
    def standard_deviation(self) -> float:
        """Root of the mean squared distance from the mean, as in scikit-learn's StandardScaler."""
        return math.sqrt(self._squares / self.count)


class Reservoir:
    """A uniform sample of at most 100,000 numbers without replacement, the same for one seed whatever the chunks are.

    Notes
    -----
    Up to 100,000 numbers it holds all of them, and quantiles are exact. Beyond, the rank of a quantile is off by at
    most 0.62 % of the numbers, for all quantiles at once, with a probability of 99.9 %: the inequality of Dvoretzky,
    Kiefer and Wolfowitz bounds the chance of an error above e by ``2 * exp(-2 * n * e**2)``, so
    ``e = sqrt(ln(2 / 0.001) / (2 * 100_000)) = 0.0062``.

    References
    ----------
    Vitter, Random Sampling with a Reservoir, 1985 (algorithm R). Massart, The Tight Constant in the
    Dvoretzky-Kiefer-Wolfowitz Inequality, 1990. Hoeffding, Probability Inequalities for Sums of Bounded Random
    Variables, 1963, section 6: sampling without replacement does no worse.
    """

    def __init__(self, seed: int, column: str) -> None:
        own = hashlib.blake2b(column.encode(), digest_size=8).digest()
        self._random = np.random.default_rng([seed, int.from_bytes(own, "little")])
        self._sample = np.empty(0, np.float64)
        self._count = 0

    def update(self, numbers: NDArray[Any]) -> None:
        """Add finite numbers (n,)."""
        room = RESERVOIR_SIZE - len(self._sample)
        if room:
            self._sample = np.append(self._sample, numbers[:room].astype(np.float64))
            self._count += len(numbers[:room])
            numbers = numbers[room:]
        seen = np.arange(self._count + 1, self._count + 1 + len(numbers))
        places = (self._random.random(len(numbers)) * seen).astype(np.int64)
        taken = np.flatnonzero(places < RESERVOIR_SIZE)[::-1]
        # if several numbers take one place, the last one stays
        unique, latest = np.unique(places[taken], return_index=True)
        self._sample[unique] = numbers[taken[latest]]
        self._count += len(numbers)

    def quantiles(self, shares: Iterable[float]) -> NDArray[np.float64]:
        """Return the linearly interpolated quantiles of these shares (shares,)."""
        return np.quantile(self._sample, list(shares))


class ValueCounts:
    """Counts of each value, for at most 100,000 values."""

    def __init__(self, column: str) -> None:
        self._column = column
        self.counts: dict[Any, int] = {}

    def update_strings(self, array: pa.Array) -> None:
        """Add the strings of a column, as `unique_strings` returns them; missing values do not count."""
        from pyarrow import compute as pc

        strings, places = unique_strings(array, self._column)
        if len(strings) and (length := pc.max(pc.utf8_length(strings)).as_py()) > MAX_STRING_LENGTH:
            raise InputError(
                (
                    f"column {self._column!r} has a text of {length:,} characters, but a string has at most "
                    f"{MAX_STRING_LENGTH:,}; set hash_buckets instead of a vocabulary, or leave the column out",
                )
            )
        counts = np.bincount(places.drop_null().to_numpy(), minlength=len(strings))
        self.add(strings.to_pylist(), counts.tolist())

    def update_numbers(self, numbers: NDArray[Any]) -> None:
        """Add finite numbers (n,)."""
        unique, counts = np.unique(numbers, return_counts=True)
        self.add(unique.tolist(), counts.tolist())

    def add(self, values: Iterable[Any], counts: Iterable[int]) -> None:
        """Add values, each with its count.

        Raises InputError if there are more than 100,000 distinct values.
        """
        for value, count in zip(values, counts, strict=True):
            self.counts[value] = self.counts.get(value, 0) + count
        if len(self.counts) > MAX_VOCABULARY:
            raise InputError(
                (
                    f"column {self._column!r} has more than {MAX_VOCABULARY:,} different values, too many to count; "
                    "set hash_buckets instead of a vocabulary, or impute a value instead of most_frequent",
                )
            )

    def by_count(self) -> tuple[Any, ...]:
        """Return the values by falling count; equal counts are in the order of the values."""
        return tuple(sorted(self.counts, key=lambda value: (-self.counts[value], value)))
