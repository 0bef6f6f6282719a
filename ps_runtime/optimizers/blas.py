"""What BLAS does in one pass over memory and numpy in two."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from psflow.ps_runtime.optimizers.base import FloatArray

__all__ = ["add_scaled"]


def add_scaled(target: FloatArray, factor: float, values: FloatArray) -> None:
    """Do ``target += factor * values`` in place; without a temporary for float32 and float64.

    Parameters
    ----------
    target, values : (size,) arrays of one float dtype, contiguous
        `values` may be used as scratch, its content is undefined afterwards.
    factor : float
        Multiplies each element of the array that is added.
    """
    axpy = _axpy(target.dtype)
    if axpy is None:
        np.multiply(values, factor, out=values)
        np.add(target, values, out=target)
    elif target.size:
        axpy(values, target, a=factor)


@lru_cache
def _axpy(dtype: np.dtype[np.floating[Any]]) -> Callable[..., object] | None:
    from scipy.linalg import blas  # a model that only predicts can do without

    return {"f": blas.saxpy, "d": blas.daxpy}.get(dtype.char)
