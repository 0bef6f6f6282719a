"""The key ``scale`` of formats whose values are whole numbers, such as pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.specs.schema import Scaling

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
