"""Reads the raw features of a batch for feature columns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.columns.computing import hashed_ids
from psflow.ps_runtime.columns.texts import decoded
from psflow.ps_runtime.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

FINGERPRINTS = 2**62
"""Crossed strings are hashed below this number."""


class Values(NamedTuple):
    """Strings or integers of a batch."""

    array: pa.Array
    present: NDArray[np.bool_]


class RawFeatures:
    """Reads features by name.

    Raises InputError if it is not a mapping.
    """

    def __init__(self, features: Any) -> None:
        if not isinstance(features, Mapping):
            fault = "feature columns read features by name, but the input is one array; let input_fn return a dict"
            raise InputError((fault,))
        self._features = features

    def numbers(self, key: str) -> NDArray[Any]:
        """Return a numeric feature, ``(batch, ...)`` of at least two axes.

        Raises InputError if it is missing, or does not have numbers.
        """
        array = self._array(key)
        if array.dtype.kind not in "fiub":
            raise InputError((f"feature {key!r} is of {array.dtype}, its column expects numbers",))
        return array

    def integers(self, key: str) -> NDArray[np.int64]:
        """Return a feature of integers, ``(batch, n)``.

        Raises InputError if it is missing, or does not have integers, or has one beyond int64.
        """
        array = self._array(key)
        if array.dtype.kind not in "iu":
            raise InputError((f"feature {key!r} is of {array.dtype}, its column expects integers",))
        if array.dtype == np.uint64 and array.max(initial=0) >= 2**63:
            raise InputError((f"feature {key!r} has {array.max()}, its column expects integers below 2**63",))
        return _flat(array.astype(np.int64))

    def values(self, key: str, dtype: str) -> Values:
        """Return a feature of strings (`dtype` ``string``) or of integers; ``""``, None and -1 are missing values.

        Raises InputError if it is missing, or of the other kind.
        """
        import pyarrow as pa

        if dtype != "string":
            numbers = self.integers(key)
            present = numbers != -1
            return Values(pa.array(numbers.ravel(), mask=~present.ravel()), present)
        strings = self._strings(key)
        present = strings != ""
        return Values(pa.array(strings.ravel(), pa.string(), mask=~present.ravel()), present)

    def fingerprints(self, key: str) -> NDArray[np.int64]:
        """Return a number for each value of a feature, ``(batch, n)``: the hash of a string, or the integer itself.

        Raises InputError if it is missing, or has neither strings nor integers.
        """
        import pyarrow as pa

        if self._array(key).dtype.kind in "iu":
            return self.integers(key)
        strings = self._strings(key)
        return hashed_ids(pa.array(strings.ravel(), pa.string()), key, FINGERPRINTS, missing_id=-1).reshape(
            strings.shape
        )

    def steps(self, key: str, of_step: tuple[int, ...] | None) -> tuple[NDArray[Any], tuple[int, int]]:
        """Return a sequence feature with a row for each step, ``(batch * length, ...)``, and batch and length.

        Raises InputError if it is missing, has no axis of steps, or steps of another shape.
        """
        array = self._array(key)
        size = math.prod(of_step or ())
        if np.ndim(self._features[key]) < 2:
            raise InputError((f"feature {key!r} has the shape ({len(array)},), expected sequences, (batch, length)",))
        if of_step is not None and array.shape[2:] != of_step and (array.ndim > 2 or array.shape[1] % size):
            expected = f"(batch, length, {', '.join(map(str, of_step))})"
            raise InputError((f"feature {key!r} has the shape {array.shape}, its column expects {expected}",))
        length = array.shape[1] if of_step is None or array.ndim > 2 else array.shape[1] // size
        shape = of_step if of_step is not None else array.shape[2:]
        return array.reshape(len(array) * length, *shape), (len(array), length)

    def _strings(self, key: str) -> NDArray[Any]:
        """Return a feature of text, ``(batch, n)``; ``""`` for None."""
        array = decoded(self._array(key), f"feature {key!r}")
        if array.dtype == object and all(string is None or isinstance(string, str) for string in array.flat):
            array = np.array(["" if string is None else string for string in array.flat]).reshape(array.shape)
        if array.dtype.kind != "U":
            raise InputError((f"feature {key!r} is of {array.dtype}, its column expects text",))
        return _flat(array)

    def _array(self, key: str) -> NDArray[Any]:
        if key not in self._features:
            names = list(self._features)
            near = did_you_mean(key, names) or f"; its features are {', '.join(map(repr, names[:10]))}"
            raise InputError((f"the input has no feature {key!r}, which a column reads{near}",))
        try:
            array: NDArray[Any] = np.asarray(self._features[key])
        except ValueError:
            fault = "has lists of several lengths, expected an array (batch, ...)"
            raise InputError((f"feature {key!r} {fault}; pad short ones with '', -1 or NaN",)) from None
        if not array.ndim:
            raise InputError((f"feature {key!r} is a single value, expected one for each example, (batch, ...)",))
        return array[:, np.newaxis] if array.ndim == 1 else array


def _flat(array: NDArray[Any]) -> NDArray[Any]:
    """Flatten the values of each example, even if there is no example."""
    return array.reshape(len(array), math.prod(array.shape[1:]))
