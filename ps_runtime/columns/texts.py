"""Decodes text that is given as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError


def decoded(values: NDArray[Any], what: str) -> NDArray[Any]:
    """Return values with bytes decoded to text; an array without bytes is returned unchanged.

    Raises InputError if bytes are not UTF-8; names the row of the first such value.

    Examples
    --------
    >>> decoded(np.array([b"yes", None]), "labels").tolist()
    ['yes', None]
    """
    is_mixed = values.dtype == object and any(isinstance(value, bytes) for value in values.flat)
    if values.dtype.kind != "S" and not is_mixed:
        return values
    texts = np.empty(values.shape, object)
    for place, value in np.ndenumerate(values):
        try:
            texts[place] = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            row = f"row {place[0]}" if place else "the value"
            fault = f"{row} of {what} is {value[:20]!r}, which is not UTF-8; decode it in input_fn"
            raise InputError((fault,)) from None
    return texts.astype(str) if values.dtype.kind == "S" else texts
