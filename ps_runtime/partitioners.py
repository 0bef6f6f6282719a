"""Provides partitioners of `tf.compat.v1`: they split a variable into slices, so that several ps share it.

A partitioner is a function ``(shape, dtype) -> slices of each axis``. Variables are split by rows, along axis 0;
without a partitioner psflow splits those that are larger than a fair share of a ps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from psflow.ps_runtime.errors import ModelFnError, ModelFnTypeError
from psflow.ps_runtime.numeric import whole_number
from psflow.ps_runtime.specs.arguments import ArgumentFaults

Shape = tuple[int, ...]
Partitioner = Callable[..., Sequence[int]]
"""Called with the keywords `shape`, a tuple of int, and `dtype`, a numpy dtype."""


def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Return a partitioner that gives a variable `num_shards` slices, or as many as it has rows.

    Parameters
    ----------
    num_shards : int
        Slices, >= 1.
    axis : int
        0.

    Raises
    ------
    UsageError
        If `num_shards` is less than 1, or `axis` not 0; an ArgumentTypeError if a number is not whole.

    Examples
    --------
    >>> fixed_size_partitioner(3)(shape=(100, 4), dtype=np.dtype("float32"))
    [3, 1]
    """
    _check("fixed_size_partitioner", axis, num_shards=num_shards)
    return partial(_fixed_size, num_shards=num_shards)


def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10
) -> Partitioner:
    """Return a partitioner that gives a variable as many slices as have `min_slice_size` bytes each.

    Parameters
    ----------
    max_partitions : int
        Maximum number of slices, >= 1.
    axis : int
        0.
    min_slice_size : int
        Bytes, >= 1.

    Raises
    ------
    UsageError
        As of `fixed_size_partitioner`.

    Examples
    --------
    >>> min_max_variable_partitioner(16)(shape=(1024, 512), dtype=np.dtype("float32"))
    [8, 1]
    """
    _check("min_max_variable_partitioner", axis, max_partitions=max_partitions, min_slice_size=min_slice_size)
    return partial(_min_max, max_partitions=max_partitions, min_slice_size=min_slice_size)


def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, *, max_shards: int | None = None
) -> Partitioner:
    """Return a partitioner that gives a variable slices of at most `max_shard_bytes`, but at least one row each.

    Parameters
    ----------
    max_shard_bytes : int
        Bytes of a slice, >= 1.
    axis : int
        0.
    max_shards : int, optional
        Maximum number of slices, >= 1, however large they are.

    Raises
    ------
    UsageError
        As of `fixed_size_partitioner`.

    Examples
    --------
    >>> variable_axis_size_partitioner(1 << 20)(shape=(1024, 512), dtype=np.dtype("float32"))
    [2, 1]
    """
    limits = {"max_shard_bytes": max_shard_bytes} | ({} if max_shards is None else {"max_shards": max_shards})
    _check("variable_axis_size_partitioner", axis, **limits)
    return partial(_axis_size, max_shard_bytes=max_shard_bytes, max_shards=max_shards)


def num_slices(name: str, shape: Shape, dtype: np.dtype[Any], partitioner: Partitioner | None) -> int | None:
    """Return how many slices of rows a variable has; None: decided by its size.

    A scalar has none, whatever the partitioner.

    Raises ModelFnError if `partitioner` slices another axis than 0, or its result is not a number of slices for each
    axis; a ModelFnTypeError if it cannot be called.
    """
    if partitioner is None or not shape:
        return None
    if not callable(partitioner):
        raise ModelFnTypeError((f"the partitioner of variable {name!r} should be callable, got {partitioner!r}",))
    given = partitioner(shape=shape, dtype=dtype)
    answer = given.tolist() if isinstance(given, np.ndarray) else given
    slices = [whole_number(number) for number in answer] if isinstance(answer, Sequence) else []
    fault = f"the partitioner of variable {name!r} of shape {list(shape)} gave {given!r}: expected "
    if len(slices) != len(shape) or any(number is None or number < 1 for number in slices):
        raise ModelFnError((f"{fault}a sequence with a number of slices, 1 or more, for each axis",))
    if any(number != 1 for number in slices[1:]):
        raise ModelFnError(
            (
                f"{fault}1 for each axis but the first, because variables are split by rows; slice axis 0, or leave "
                "the partitioner out: large variables are split by their bytes",
            )
        )
    first = slices[0]
    assert first is not None, "the first fault is that one of them is"
    if first > max(1, shape[0]):
        raise ModelFnError((f"{fault}at most as many slices as the variable has rows, {shape[0]}",))
    return first


def _fixed_size(shape: Shape, dtype: np.dtype[Any], num_shards: int) -> list[int]:
    return _along_rows(shape, num_shards)


def _min_max(shape: Shape, dtype: np.dtype[Any], max_partitions: int, min_slice_size: int) -> list[int]:
    wanted = math.ceil(math.prod(shape) * dtype.itemsize / min_slice_size)
    return _along_rows(shape, max(1, min(max_partitions, wanted)))


def _axis_size(shape: Shape, dtype: np.dtype[Any], max_shard_bytes: int, max_shards: int | None) -> list[int]:
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    rows_of_slice = max(1, max_shard_bytes // max(1, row_bytes))
    wanted = math.ceil(shape[0] / rows_of_slice)
    return _along_rows(shape, wanted if max_shards is None else min(max_shards, wanted))


def _along_rows(shape: Shape, wanted: int) -> list[int]:
    return [max(1, min(wanted, shape[0])), *(1 for _ in shape[1:])]


def _check(partitioner: str, axis: int, **at_least_1: int) -> None:
    faults = ArgumentFaults(f"{partitioner}: ")
    for name, given in at_least_1.items():
        faults.whole(name, given, at_least=1)
    if axis != 0:
        faults.add(
            f"{partitioner}: axis should be 0, got {axis!r}: variables are split by rows; leave the partitioner out, "
            "and large variables are split by their bytes"
        )
    faults.raise_any()
