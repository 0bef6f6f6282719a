"""From the features of a batch to the matrix that a dense network reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError

__all__ = ["feature_matrix"]


def feature_matrix(features: Any) -> NDArray[np.float32]:
    """Return the features of a batch as one float32 matrix.

    Parameters
    ----------
    features : array, or mapping of str to array
        Numbers of shape ``(batch, k)``, or ``(batch,)`` for a single column. The arrays of a mapping are put side by
        side in the sorted order of their names.

    Returns
    -------
    (batch, features) float32 array
        The array itself if it is one already.

    Raises
    ------
    InputError
        If an array is not of numbers, has another shape, or the arrays of a mapping differ in length; or if there is
        none.

    Examples
    --------
    >>> feature_matrix({"b": np.array([[3, 4]]), "a": np.array([1])})
    array([[1., 3., 4.]], dtype=float32)
    """
    if not isinstance(features, Mapping):
        return _columns("features", features)
    if not features:
        raise InputError(("expected at least one feature, got an empty mapping",))
    columns = {name: _columns(f"feature {name!r}", features[name]) for name in sorted(features)}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError((f"expected features of one length, got {lengths} rows",))
    return np.concatenate(list(columns.values()), axis=1)


def _columns(what: str, values: Any) -> NDArray[np.float32]:
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InputError((f"{what}: expected numbers, got {array.dtype}; encode them as numbers in input_fn",))
    if array.ndim not in (1, 2):
        raise InputError((f"{what}: expected an array of shape (batch, k), got {array.shape}; flatten each example",))
    return np.asarray(array if array.ndim == 2 else array[:, np.newaxis], np.float32)
