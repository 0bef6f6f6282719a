"""What `Estimator.predict` yields: chosen predictions, by batches or by examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ModelFnError, UsageError, did_you_mean

__all__ = ["check_keys", "choose", "examples_of"]

Predictions = NDArray[Any] | dict[str, NDArray[Any]]
"""Of a batch: one array, or arrays by name."""


def choose(predictions: Any, keys: Sequence[str]) -> Predictions:
    """Return the predictions of a batch with the names `keys`; all of them if there are no keys.

    Raises
    ------
    UsageError
        As `check_keys`.
    """
    check_keys(predictions, keys)
    if not isinstance(predictions, Mapping):
        return np.asarray(predictions)
    return {key: np.asarray(predictions[key]) for key in keys or predictions}


def check_keys(predictions: Any, keys: Sequence[str]) -> None:
    """Raise UsageError if a key is not among the predictions of an EstimatorSpec, or if they have no names."""
    if not keys:
        return
    if not isinstance(predictions, Mapping):
        raise UsageError(("predict_keys: model_fn predicts one array, which has no key; leave predict_keys out",))
    faults = tuple(
        f"there is no prediction {key!r}{did_you_mean(key, predictions)}" for key in keys if key not in predictions
    )
    if faults:
        raise UsageError(faults)


def examples_of(predictions: Predictions, num_rows: int, model: str) -> Iterator[Any]:
    """Yield the predictions for each example of a batch.

    Raises
    ------
    ModelFnError
        If there are no predictions, or one of them has not one row for each example.
    """
    named = predictions if isinstance(predictions, dict) else {"predictions": predictions}
    if not named or any(value.shape[:1] != (num_rows,) for value in named.values()):
        shapes = ", ".join(f"{key!r} of shape {list(value.shape)}" for key, value in named.items()) or "nothing"
        raise ModelFnError(
            (
                f"{model} predicts {shapes} for {num_rows} examples: expected one row of each prediction for each "
                "example; correct it, or call predict with yield_single_examples=False",
            )
        )
    if isinstance(predictions, dict):
        yield from ({key: value[row] for key, value in predictions.items()} for row in range(num_rows))
    else:
        yield from predictions
