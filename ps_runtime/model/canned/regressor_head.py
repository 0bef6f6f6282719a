"""What a regressor does with the outputs of a network: loss, predictions, metrics; and what it accepts as labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.losses import FloatArray, mean_squared_error
from psflow.ps_runtime.model.canned.base import Head, weighted_mean_loss
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["RegressorHead"]


@dataclass(frozen=True, slots=True)
class RegressorHead(Head):
    """The outputs are the predictions; the loss is the mean of their squared errors over all examples and dimensions.

    With a normalizer the outputs are predictions of labels less their mean, by their deviation, and so the loss is that
    of these; predictions and metrics are those of the labels themselves.

    Parameters
    ----------
    label_dimension : int
        Numbers of a label, at least 1; labels are ``(batch, label_dimension)``, or ``(batch,)`` where it is 1.
    mean, deviation : float
        Of the labels, where they are normalized.
    """

    label_dimension: int
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def reading(cls, label_dimension: int, schema: InputSchema) -> Self:
        """Return the head of a regressor of the labels of a training input."""
        normalizer = schema.label_normalizer
        if normalizer is None:
            return cls(label_dimension)
        return cls(label_dimension, normalizer.mean, normalizer.standard_deviation or 1.0)

    @property
    def num_outputs(self) -> int:
        """One for each number of a label."""
        return self.label_dimension

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `loss` would refuse; see `Head.check_labels`."""
        self._targets(labels, (np.shape(labels) or (1,))[0], where)

    def loss(self, labels: Any, outputs: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean squared error of a batch and its gradient with respect to `outputs`.

        Raises
        ------
        InputError
            If labels are no numbers, or not `label_dimension` for each example.
        """
        targets = self._targets(labels, len(outputs))
        return mean_squared_error(
            (targets - self.mean) / self.deviation if self._normalizes else targets, outputs, weights
        )

    def predictions(self, outputs: FloatArray) -> dict[str, NDArray[Any]]:
        """Return ``predictions``, ``(batch, label_dimension)``."""
        return {"predictions": outputs * self.deviation + self.mean if self._normalizes else outputs}

    def metrics(
        self,
        labels: Any,
        predictions: Mapping[str, NDArray[Any]],
        loss: float,
        weights: FloatArray | None = None,
    ) -> dict[str, metrics.Metric]:
        """Return the metrics of a batch; `loss` is its mean loss."""
        guesses = predictions["predictions"]
        targets = self._targets(labels, len(guesses))
        of_elements = None if weights is None else weights[:, np.newaxis]
        return {
            "average_loss": weighted_mean_loss(loss * self.deviation**2, targets.size, weights),
            "label/mean": metrics.mean(targets, of_elements),
            "prediction/mean": metrics.mean(guesses, of_elements),
        }

    @property
    def _normalizes(self) -> bool:
        return (self.mean, self.deviation) != (0.0, 1.0)

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
