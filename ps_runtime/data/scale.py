"""The key ``scale`` of formats whose values are whole numbers, such as pixels, which are scaled as they are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np

from psflow.ps_runtime.data.arrays import Array, Columns
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.numeric import read_only
from psflow.ps_runtime.specs.schema import MATRIX, Scaling

ScaleRange = Annotated[
    Sequence[float],
    Key(
        "Range to which pixels are scaled, as [low, high]. It is part of the model, which predicts from stored pixels."
    ),
]
UNIT = (0.0, 1.0)


def scaling_to(scale: Sequence[float], largest: int) -> Scaling:
    """Return the scaling of whole numbers from 0 to `largest` to the range `scale`.

    Raises InputError if `scale` is not a range.
    """
    bounds = [float(bound) for bound in scale]
    if len(bounds) != 2 or not all(map(math.isfinite, bounds)) or bounds[0] >= bounds[1]:
        expected = f"two numbers, the lower one first, such as [0, 1], or [0, {largest}] to leave pixels as they are"
        raise InputError((f"scale: expected {expected}, got {list(scale)}",))
    return Scaling(largest, *bounds)


def holds_stored(features: Columns) -> bool:
    """Return whether the matrix of a table with a scaling holds integers: stored values, not scaled yet."""
    return _matrix_of(features).dtype.kind in "iu"


def scaled_rows(features: Columns, scaling: Scaling) -> Columns:
    """Return a table of stored values with its matrix scaled."""
    assert isinstance(features, dict), "a table is a named array"
    return {**features, MATRIX: read_only(scaling.apply(features[MATRIX]))}


def faults_of_stored(features: Columns, scaling: Scaling) -> Iterator[str]:
    """Yield the fault of a stored value that is out of range; a dtype that has no others is not searched."""
    if holds_stored(features):
        stored = _matrix_of(features)
        limits = np.iinfo(stored.dtype)
        if (limits.min < 0 or limits.max > scaling.largest) and (fault := scaling.fault(stored)) is not None:
            yield f"feature {MATRIX!r} {fault}"


def _matrix_of(features: Columns) -> Array:
    assert isinstance(features, dict), "a scaling needs columns, and a table is a named array"
    return features[MATRIX]
