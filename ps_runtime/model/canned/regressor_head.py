"""What a regressor does with the outputs of a network: loss, predictions, metrics; and what it accepts as labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.losses import FloatArray, mean_squared_error
from psflow.ps_runtime.model.canned.base import Head

__all__ = ["RegressorHead"]


@dataclass(frozen=True, slots=True)
class RegressorHead(Head):
    """The outputs are the predictions; the loss is the mean of their squared errors over all examples and dimensions.

    Parameters
    ----------
    label_dimension : int
        Numbers of a label, at least 1; labels are ``(batch, label_dimension)``, or ``(batch,)`` where it is 1.
    """

    label_dimension: int

    @property
    def num_outputs(self) -> int:
        """One for each number of a label."""
        return self.label_dimension

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `loss` would refuse; see `Head.check_labels`."""
        self._targets(labels, (np.shape(labels) or (1,))[0], where)

    def loss(self, labels: Any, outputs: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean squared error of a batch and its gradient with respect to `outputs`.

        Raises
        ------
        InputError
            If labels are no numbers, or not `label_dimension` for each example.
        """
        return mean_squared_error(self._targets(labels, len(outputs)), outputs)

    def predictions(self, outputs: FloatArray) -> dict[str, NDArray[Any]]:
        """Return ``predictions``, ``(batch, label_dimension)``."""
        return {"predictions": outputs}

    def metrics(self, labels: Any, predictions: Mapping[str, NDArray[Any]], loss: float) -> dict[str, metrics.Metric]:
        """Return the metrics of a batch; `loss` is its mean loss."""
        guesses = predictions["predictions"]
        targets = self._targets(labels, len(guesses))
        return {
            "average_loss": metrics.mean(loss, weights=targets.size),
            "label/mean": metrics.mean(targets),
            "prediction/mean": metrics.mean(guesses),
        }

    def _targets(self, labels: Any, rows: int, where: str = "the batch") -> NDArray[Any]:
        """Return `labels` as ``(rows, label_dimension)`` numbers."""
        if labels is None:
            raise InputError((f"a regressor needs labels, {where} has none; let input_fn return (features, labels)",))
        given = np.asarray(labels)
        shape = (rows, self.label_dimension)
        if given.shape != shape and (given.shape, self.label_dimension) != ((rows,), 1):
            expected = f"labels of shape {shape} for the {rows} examples of {where}"
            raise InputError(
                (f"expected {expected}, got {given.shape}; set label_dimension to the numbers of a label",)
            )
        if given.dtype.kind not in "biuf":
            raise InputError(
                (f"expected labels that are numbers, got {given.dtype} such as {given.reshape(-1)[:1].tolist()}",)
            )
        return given.reshape(shape)
