"""The key ``scale`` of formats whose values are whole numbers, such as pixels, which are scaled as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from psflow.ps_runtime.data.arrays import Columns
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
MIN_RANGE, MAX_RANGE = 1e-30, 1e30
"""Limits of the length of a range, and of its bounds: far beyond them float32 has no numbers."""


def scaling_to(scale: Sequence[float], largest: int) -> Scaling:
    """Return the scaling of whole numbers from 0 to `largest` to the range `scale`.

    Raises InputError if `scale` is not a range of float32.
    """
    bounds = [float(bound) for bound in scale]
    if len(bounds) != 2 or not MIN_RANGE <= bounds[1] - bounds[0] <= MAX_RANGE or max(map(abs, bounds)) > MAX_RANGE:
        expected = f"two numbers, the lower one first, such as [0, 1], or [0, {largest}] to leave pixels as they are"
        raise InputError((f"scale: expected {expected}, got {list(scale)}",))
    return Scaling(largest, *bounds)


def scaled_rows(features: Columns, scaling: Scaling) -> Columns:
    """Return a table of stored values with its matrix scaled."""
    assert isinstance(features, dict), "a table is a named array"
    return {**features, MATRIX: read_only(scaling.apply(features[MATRIX]))}


def faults_of_stored(features: Columns, scaling: Scaling | None) -> Iterator[str]:
    """Yield the fault of a table whose matrix does not hold stored values of a scaling."""
    if scaling is None:
        yield "is_stored is True: expected a scaling, too, got None"
        return
    assert isinstance(features, dict), "a scaling needs columns, and a table is a named array"
    stored = features[MATRIX]
    if stored.dtype.kind not in "iu":
        yield f"is_stored is True: expected integers in {MATRIX!r}, got {stored.dtype}"
    elif stored.min() < 0 or stored.max() > scaling.largest:
        yield f"feature {MATRIX!r} {scaling.fault(stored)}"
