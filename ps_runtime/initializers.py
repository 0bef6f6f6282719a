"""Provides first values of variables: functions ``(shape, dtype, rng) -> array``, picklable, drawn in float64.

`zeros`, `ones`, `glorot_uniform` and `he_normal` are initializers; `constant`, `uniform`, `normal` and
`truncated_normal` make one.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = [
    "Initializer",
    "TableInitializer",
    "constant",
    "glorot_uniform",
    "he_normal",
    "normal",
    "of_table",
    "ones",
    "table_seed",
    "truncated_normal",
    "uniform",
    "variable_rng",
    "zeros",
]

Shape = tuple[int, ...]
Initializer = Callable[[Shape, DTypeLike, np.random.Generator], NDArray[Any]]
TableInitializer = tuple[Literal["uniform", "normal", "constant", "zeros"], float]
"""Argument of `embedding_lookup`: name and scale."""

_TRUNCATED_STDDEV = 0.87962566103423978
"""Standard deviation of the standard normal distribution cut off at -2 and 2."""


def variable_rng(seed: int, name: str) -> np.random.Generator:
    """Return the random generator of one variable.

    Depends only on `seed` and `name`: neither the order of creation nor the number of ps changes its numbers.

    Examples
    --------
    >>> first = variable_rng(7, "dense/kernel").random()
    >>> first == variable_rng(7, "dense/kernel").random(), first == variable_rng(7, "dense/bias").random()
    (True, False)
    """
    return np.random.Generator(np.random.PCG64(_seed_of(seed, name, num_bytes=16)))


def table_seed(seed: int, name: str) -> int:
    """Return the 64 bits that, with id and column, decide the first values of a table's rows.

    Depends only on `seed` and `name`, as `variable_rng` does.
    """
    return _seed_of(seed, name, num_bytes=8)


def _seed_of(seed: int, name: str, num_bytes: int) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=num_bytes).digest(), "little")


def of_table(initializer: Initializer) -> TableInitializer | None:
    """Return name and scale of the initializer for the rows of a sparse table; None if there is no such form.

    Examples
    --------
    >>> of_table(normal(stddev=0.5)), of_table(uniform(low=0, high=1))
    (('normal', 0.5), None)
    """
    if initializer is zeros:
        return "zeros", 0.0
    if not isinstance(initializer, partial):
        return None
    given = initializer.keywords
    if initializer.func is _normal and given["mean"] == 0:
        return "normal", float(given["stddev"])
    if initializer.func is _uniform and given["low"] == -given["high"]:
        return "uniform", float(given["high"])
    if initializer.func is _constant and np.ndim(given["value"]) == 0:
        return "constant", float(given["value"])
    return None


def zeros(shape: Shape, dtype: DTypeLike, rng: np.random.Generator) -> NDArray[Any]:
    """Return an array of zeros."""
    return np.zeros(shape, dtype)


def ones(shape: Shape, dtype: DTypeLike, rng: np.random.Generator) -> NDArray[Any]:
    """Return an array of ones."""
    return np.ones(shape, dtype)


def constant(value: ArrayLike) -> Initializer:
    """Make an initializer that fills with `value`, a number or an array that broadcasts to the shape."""
    return partial(_constant, value=value)


def uniform(*, low: float = -0.05, high: float = 0.05) -> Initializer:
    """Make an initializer that draws from [low, high) evenly."""
    return partial(_uniform, low=low, high=high)


def normal(*, mean: float = 0.0, stddev: float = 0.05) -> Initializer:
    """Make an initializer that draws from a normal distribution."""
    return partial(_normal, mean=mean, stddev=stddev)


def truncated_normal(*, mean: float = 0.0, stddev: float = 0.05) -> Initializer:
    """Make an initializer that draws from a normal distribution, again while beyond two `stddev` of `mean`."""
    return partial(_truncated_normal, mean=mean, stddev=stddev)


def glorot_uniform(shape: Shape, dtype: DTypeLike, rng: np.random.Generator) -> NDArray[Any]:
    """Draw from [-limit, limit) evenly, ``limit = sqrt(6 / (fan_in + fan_out))``.

    References
    ----------
    Glorot, Bengio, Understanding the difficulty of training deep feedforward neural networks, 2010.
    """
    limit = math.sqrt(6.0 / max(1, sum(_fans(shape))))
    return _uniform(shape, dtype, rng, low=-limit, high=limit)


def he_normal(shape: Shape, dtype: DTypeLike, rng: np.random.Generator) -> NDArray[Any]:
    """Draw from a truncated normal distribution whose standard deviation after truncation is ``sqrt(2 / fan_in)``.

    References
    ----------
    He et al., Delving Deep into Rectifiers, 2015.
    """
    stddev = math.sqrt(2.0 / max(1, _fans(shape)[0])) / _TRUNCATED_STDDEV
    return _truncated_normal(shape, dtype, rng, mean=0.0, stddev=stddev)


def _constant(shape: Shape, dtype: DTypeLike, rng: np.random.Generator, *, value: ArrayLike) -> NDArray[Any]:
    return np.full(shape, value, dtype)


def _uniform(shape: Shape, dtype: DTypeLike, rng: np.random.Generator, *, low: float, high: float) -> NDArray[Any]:
    return np.asarray(rng.uniform(low, high, shape), dtype)


def _normal(shape: Shape, dtype: DTypeLike, rng: np.random.Generator, *, mean: float, stddev: float) -> NDArray[Any]:
    return np.asarray(rng.normal(mean, stddev, shape), dtype)


def _truncated_normal(
    shape: Shape, dtype: DTypeLike, rng: np.random.Generator, *, mean: float, stddev: float
) -> NDArray[Any]:
    values = np.asarray(rng.standard_normal(shape))
    while (outside := np.abs(values) > 2.0).any():
        values[outside] = rng.standard_normal(np.count_nonzero(outside))
    return np.asarray(values * stddev + mean, dtype)


def _fans(shape: Shape) -> tuple[int, int]:
    """Return how many inputs feed an output and how many outputs an input feeds; earlier axes are spatial."""
    if len(shape) < 2:
        size = shape[0] if shape else 1
        return size, size
    space = math.prod(shape[:-2])
    return shape[-2] * space, shape[-1] * space
