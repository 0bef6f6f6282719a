"""Computes initial values of rows as a hash of seed, id and column, so that they depend on nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import did_you_mean
from psflow.ps_runtime.numeric import is_number
from psflow.ps_runtime.specs.variables import TableSpec

_PARAMETERS = {"zeros": (), "constant": ("value",), "uniform": ("scale",), "normal": ("scale",)}
"""The initializers, with their parameters."""

_NUM_CACHED = 1 << 15
"""Hashes computed together: they fit the cache."""


def initializer_faults(config: Mapping[str, Any]) -> list[str]:
    """Return the faults of a `TableSpec.initializer`.

    Supported are ``{"name": "zeros"}``, ``{"name": "constant", "value": x}``, ``{"name": "uniform", "scale": s}`` for
    values in (-s, s), and ``{"name": "normal", "scale": s}`` for a standard deviation of s.

    Examples
    --------
    >>> initializer_faults({"name": "unifrm", "scale": 0.05})
    ["unknown initializer 'unifrm', expected one of zeros, constant, uniform, normal; did you mean 'uniform'?"]
    """
    name = config.get("name")
    if not isinstance(name, str) or name not in _PARAMETERS:
        near = did_you_mean(name, _PARAMETERS) if isinstance(name, str) else ""
        return [f"unknown initializer {name!r}, expected one of {', '.join(_PARAMETERS)}{near}"]
    expected = _PARAMETERS[name]
    faults = [f"{name}: unknown key {key!r}" for key in sorted(config.keys() - {"name", *expected})]
    for key in expected:
        value: Any = config.get(key)
        is_finite = is_number(value) and math.isfinite(value)
        if not is_finite or (key == "scale" and float(value or 0.0) < 0.0):
            faults.append(f"{name}: {key} is {value!r}, expected a finite number{' >= 0' if key == 'scale' else ''}")
    return faults


def initial_rows(spec: TableSpec, ids: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values of rows before the first update.

    Notes
    -----
    A row depends only on the seed, its id and the initializer: not on other ids, and not on the number of shards.
    Values have 23 random bits, whatever the dtype; a normal one is at most 5.8 standard deviations from 0.

    References
    ----------
    Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, 2014 (the mixing function of SplitMix64).
    Box, Muller, A Note on the Generation of Random Normal Deviates, 1958.
    """
    config = spec.initializer
    if config["name"] in ("zeros", "constant"):
        return np.full((len(ids), spec.dim), config.get("value", 0.0), spec.dtype)
    fill = _fill_uniform if config["name"] == "uniform" else _fill_normal
    rows = np.empty((len(ids), spec.dim), spec.dtype)
    num_pairs = -(-spec.dim // 2)
    step = max(1, _NUM_CACHED // num_pairs)
    for start in range(0, len(ids), step):
        numbers = _symmetric_numbers(spec.seed, ids[start : start + step], num_pairs)
        fill(rows[start : start + step], numbers, config["scale"])
    return rows


def _symmetric_numbers(seed: int, ids: NDArray[np.int64], num_pairs: int) -> NDArray[np.float32]:
    """Return odd multiples of 1/2 between -(2**22) and 2**22: exact in float32, and never 0.

    They have shape ``(num_pairs, 2 * n)``, two numbers of an id adjacent: numpy is faster along n than along a row.
    """
    keys = ids.astype(np.uint64)
    keys += _start_of(seed)
    mix_bits(keys)
    hashes = keys + _GAMMA * np.arange(1, num_pairs + 1, dtype=np.uint64)[:, np.newaxis]
    mix_bits(hashes)
    halves = hashes.view(np.uint32)
    np.right_shift(halves, np.uint32(9), out=halves)
    numbers = halves.astype(np.float32)
    numbers += np.float32(0.5 - 2.0**22)
    return numbers


@lru_cache(maxsize=1024)  # each table needs its own at every step
def _start_of(seed: int) -> np.uint64:
    """Return values far apart for neighbouring seeds, so that no two tables share rows."""
    start = np.array([seed % 2**64], np.uint64)
    mix_bits(start)
    return np.uint64(start[0])


def _fill_uniform(rows: NDArray[Any], numbers: NDArray[np.float32], scale: float) -> None:
    numbers *= np.float32(scale * 2.0**-22)
    rows[:, 0::2] = numbers[:, 0::2].T
    rows[:, 1::2] = numbers[: rows.shape[1] // 2, 1::2].T


def _fill_normal(rows: NDArray[Any], numbers: NDArray[np.float32], scale: float) -> None:
    numbers *= np.float32(2.0**-23)
    u, v = numbers[:, 0::2] + np.float32(0.5), numbers[:, 1::2] * np.float32(2.0 * math.pi)
    radius = np.sqrt(np.float32(-2.0) * np.log(u)) * np.float32(scale)
    rows[:, 0::2] = (radius * np.cos(v)).T
    rows[:, 1::2] = (radius * np.sin(v))[: rows.shape[1] // 2].T


_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix_bits(numbers: NDArray[np.uint64]) -> None:
    """Scramble 64-bit numbers in place, one to one."""
    scratch = np.empty_like(numbers)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, None)):
        np.right_shift(numbers, np.uint64(shift), out=scratch)
        np.bitwise_xor(numbers, scratch, out=numbers)
        if factor is not None:
            np.multiply(numbers, np.uint64(factor), out=numbers)
