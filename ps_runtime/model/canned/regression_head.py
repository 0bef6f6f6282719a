"""The head of regressors: loss, predictions and metrics of the outputs of a network."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import FloatArray, Reduction, mean_squared_error
from psflow.ps_runtime.model.canned.arguments import check, count_faults, loss_faults, name_faults
from psflow.ps_runtime.model.canned.base import (
    Head,
    LossReduction,
    Predictions,
    WeightColumn,
    weight_of_input,
    weighted_mean_loss,
)
from psflow.ps_runtime.model.export.outputs import ExportOutput, RegressionOutput
from psflow.ps_runtime.specs.schema import InputSchema


@dataclass(frozen=True, slots=True)
class RegressionHead(Head):
    """The logits are the predictions; the losses are their squared errors.

    With a normalizer the logits predict normalized labels, ``(label - mean) / deviation``, and the loss is that of
    these; predictions and metrics are those of the labels themselves.

    Parameters
    ----------
    label_dimension : int
        Size of a label, at least 1; labels are ``(batch, label_dimension)``, or ``(batch,)`` for size 1.
    weight_column : str, optional
        The feature that holds the weights of the examples.
    loss_reduction : Reduction or str
        Reduction of the losses of a batch, one for each number of a label, to one number.
    name : str, optional
        Suffix of the metric names.
    mean, deviation : float
        Those of the labels, where tabular files normalize them.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.
    """

    label_dimension: Annotated[int, Key("Numbers of each label.", ge=1)] = 1
    weight_column: WeightColumn = None
    loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE
    _: KW_ONLY
    name: str | None = None
    mean: Annotated[float, Key("Mean of normalized labels; set by the label of tabular files.")] = 0.0
    deviation: Annotated[float, Key("Deviation of normalized labels; set by the label of tabular files.")] = 1.0

    def __post_init__(self) -> None:
        faults = count_faults("label_dimension", self.label_dimension, at_least=1)
        faults += [*loss_faults(self.weight_column, self.loss_reduction), *name_faults(self.name)]
        check("RegressionHead", faults)
        object.__setattr__(self, "label_dimension", int(self.label_dimension))
        object.__setattr__(self, "loss_reduction", Reduction(self.loss_reduction))

    @property
    def logits_dimension(self) -> int:
        """One for each number of a label."""
        return self.label_dimension

    @property
    def losses_each(self) -> int:
        """One for each number of a label."""
        return self.label_dimension

    def reading(self, schema: InputSchema) -> Self:
        """Return the head with the normalizer and the weights of a training input; see `Head.reading`."""
        read = replace(self, weight_column=weight_of_input(self.weight_column, schema))
        normalizer = schema.label_normalizer
        if normalizer is None:
            return read
        return replace(read, mean=normalizer.mean, deviation=normalizer.standard_deviation or 1.0)

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `mean_loss` would refuse; see `Head.check_labels`."""
        self._targets(labels, (np.shape(labels) or (1,))[0], where)

    def mean_loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean squared error of a batch and its gradient; see `Head.mean_loss`."""
        targets = self._targets(labels, len(logits))
        return mean_squared_error(
            (targets - self.mean) / self.deviation if self._normalizes else targets, logits, weights
        )

    def predictions(self, logits: FloatArray) -> dict[str, NDArray[Any]]:
        """Return ``predictions``, ``(batch, label_dimension)``."""
        return {"predictions": logits * self.deviation + self.mean if self._normalizes else logits}

    def measured(
        self, labels: Any, predictions: Predictions, mean_loss: float, weights: FloatArray | None
    ) -> dict[str, metrics.Metric]:
        """Return the metrics of a batch; see `Head.measured`."""
        guesses = predictions["predictions"]
        targets = self._targets(labels, len(guesses))
        of_elements = None if weights is None else weights[:, np.newaxis]
        return {
            "average_loss": weighted_mean_loss(mean_loss * self.deviation**2, targets.size, weights),
            "label/mean": metrics.mean(targets, of_elements),
            "prediction/mean": metrics.mean(guesses, of_elements),
        }

    def outputs(self, predictions: Predictions) -> dict[str, ExportOutput]:
        """Return the signature ``regression``; see `Head.outputs`."""
        return {"regression": RegressionOutput(predictions["predictions"])}

    @property
    def _normalizes(self) -> bool:
        return (self.mean, self.deviation) != (0.0, 1.0)

    def _targets(self, labels: Any, rows: int, where: str = "the batch") -> NDArray[Any]:
        """Return `labels` as ``(rows, label_dimension)`` numbers."""
        if labels is None:
            raise InputError((f"a regressor needs labels, {where} has none; return (features, labels) from input_fn",))
        given = np.asarray(labels)
        shape = (rows, self.label_dimension)
        if given.shape != shape and (given.shape, self.label_dimension) != ((rows,), 1):
            expected = f"labels of shape {shape} for the {rows} examples of {where}"
            raise InputError((f"expected {expected}, got {given.shape}; set label_dimension to the size of a label",))
        if given.dtype.kind not in "biuf":
            raise InputError(
                (f"expected labels that are numbers, got {given.dtype} such as {given.reshape(-1)[:1].tolist()}",)
            )
        return given.reshape(shape)
