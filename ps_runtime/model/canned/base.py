"""What canned models have in common: a head judges the logits of a network, whatever has computed them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.losses import FloatArray, Reduction
from psflow.ps_runtime.metrics import Mean, Metric
from psflow.ps_runtime.model.canned.features import read_weights
from psflow.ps_runtime.model.export.outputs import DEFAULT_SIGNATURE, ExportOutput, PredictOutput
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import InputSchema

PREDICT_SIGNATURE = "predict"

Predictions = Mapping[str, NDArray[Any]]


class Head(ABC):
    """What the logits of a network stand for: loss, predictions, metrics; and what it accepts as labels.

    Attributes
    ----------
    weight_column : str or None
        The feature that is the weights of the examples; None: all weigh alike.
    loss_reduction : Reduction
        How the losses of a batch become one number.
    name : str or None
        Follows the names of the metrics, after a ``/``.
    """

    __slots__ = ()

    weight_column: str | None
    loss_reduction: Reduction
    name: str | None

    @property
    @abstractmethod
    def logits_dimension(self) -> int:
        """How many logits each example needs."""

    @property
    @abstractmethod
    def losses_each(self) -> int:
        """How many losses each example has, which the divisor of SUM_OVER_BATCH_SIZE counts."""

    @abstractmethod
    def reading(self, schema: InputSchema) -> Self:
        """Return the head with what a training input tells of its labels and weights.

        Raises
        ------
        InputError
            If the input tells something else.
        """

    @abstractmethod
    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `mean_loss` would refuse, before anything starts.

        Parameters
        ----------
        labels : array of as many rows as there are examples
            Of a whole data set.
        where : str
            What to call it, such as ``the train input``.

        Raises
        ------
        InputError
            Says what is wrong with them, and in which row.
        """

    @abstractmethod
    def mean_loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean loss of a batch and its gradient with respect to `logits`, ``(batch, logits_dimension)``.

        `weights`, ``(batch,)``, multiply the losses of the examples; the divisor of the mean is the number of losses.

        Raises
        ------
        InputError
            If the labels are not what `check_labels` accepts, or there is not one for each example.
        """

    @abstractmethod
    def predictions(self, logits: FloatArray) -> dict[str, NDArray[Any]]:
        """Return the predictions by name, each of shape ``(batch, ...)``."""

    @abstractmethod
    def measured(
        self, labels: Any, predictions: Predictions, mean_loss: float, weights: FloatArray | None
    ) -> dict[str, Metric]:
        """Return the metrics of a batch, weighted by `weights`, without the name of the head."""

    @abstractmethod
    def outputs(self, predictions: Predictions) -> dict[str, ExportOutput]:
        """Return what an export answers with beside the predictions, by the names of the signatures."""

    def loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the loss of a batch and its gradient with respect to `logits`, both after `loss_reduction`.

        Raises
        ------
        InputError
            As `mean_loss` does.
        ModelFnError
            If the logits are of another shape.
        """
        self._check_logits(logits)
        return self._reduced(*self.mean_loss(labels, logits, weights), weights)

    def metrics(
        self, labels: Any, predictions: Predictions, mean_loss: float, weights: FloatArray | None = None
    ) -> dict[str, Metric]:
        """Return the metrics of a batch by name, weighted by `weights`; `mean_loss` is that of the batch."""
        ending = "" if self.name is None else f"/{self.name}"
        return {
            f"{key}{ending}": metric for key, metric in self.measured(labels, predictions, mean_loss, weights).items()
        }

    def create_estimator_spec(
        self,
        features: Any,
        mode: ModeKeys,
        logits: FloatArray,
        labels: Any = None,
        train_op_fn: Callable[[FloatArray], TrainOp | Sequence[TrainOp]] | None = None,
    ) -> EstimatorSpec:
        """Return what a model_fn with this head answers.

        Predictions are computed in EVAL and PREDICT, where somebody reads them.

        Parameters
        ----------
        features : array or mapping of str to array
            Of the batch, with the weights if there is a `weight_column`; these are not read in PREDICT.
        mode : ModeKeys
            That of the call.
        logits : (batch, logits_dimension) floats
            Of the network.
        labels : array, or None in PREDICT
            Of the batch.
        train_op_fn : callable
            Returns the train_op, given the gradient of the loss with respect to `logits`; called in TRAIN.

        Raises
        ------
        InputError
            If labels or weights are not what the head takes.
        ModelFnError
            If the logits are of another shape.
        """
        self._check_logits(logits)
        if mode == ModeKeys.PREDICT:
            predictions = self.predictions(logits)
            answer = PredictOutput(predictions)
            outputs = {DEFAULT_SIGNATURE: answer, PREDICT_SIGNATURE: answer, **self.outputs(predictions)}
            return EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
        weights = read_weights(features, self.weight_column)
        mean_loss, gradient = self.mean_loss(labels, logits, weights)
        if mode == ModeKeys.EVAL:
            predictions = self.predictions(logits)
            metrics = self.metrics(labels, predictions, mean_loss, weights)
            loss, _ = self._reduced(mean_loss, gradient, weights)
            return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=metrics)
        loss, gradient = self._reduced(mean_loss, gradient, weights)
        return EstimatorSpec(mode, loss=loss, train_op=None if train_op_fn is None else train_op_fn(gradient))

    def _check_logits(self, logits: Any) -> None:
        shape = np.shape(logits)
        if len(shape) != 2 or shape[1] != self.logits_dimension:
            name = type(self).__name__
            raise ModelFnError(
                (
                    f"logits have the shape {list(shape)}, expected [batch, {self.logits_dimension}] for {name}: make "
                    f"the last layer {self.logits_dimension} wide",
                )
            )

    def _reduced(self, mean_loss: float, gradient: FloatArray, weights: FloatArray | None) -> tuple[float, FloatArray]:
        num_examples = len(gradient)
        factor = self.loss_reduction.of_mean(weights, num_examples, num_examples * self.losses_each)
        if factor != 1.0:
            gradient *= factor
        return mean_loss * factor, gradient


class HeadSpec(Protocol):
    """What a canned model is asked to predict: a head, or what becomes one once the training input is known."""

    @property
    def weight_column(self) -> str | None:
        """The feature that is the weights of the examples, as somebody has set it."""

    def reading(self, schema: InputSchema) -> Head:
        """Return the head for a training input; see `Head.reading`."""


def weight_of_input(weight_column: str | None, schema: InputSchema) -> str | None:
    """Return the feature that is the weights of a training input; InputError if it is not the one that is set."""
    if weight_column not in (None, schema.weight):
        weight = "none" if schema.weight is None else repr(schema.weight)
        raise InputError((f"weight_column is {weight_column!r}, but the weights of the training input are {weight}",))
    return schema.weight


def weighted_mean_loss(mean_loss: float, num_losses: int, weights: FloatArray | None) -> Mean:
    """Return the metric that is the mean of the losses of all examples, by their weights."""
    if weights is None:
        return Mean(mean_loss * num_losses, float(num_losses))
    losses_each = num_losses / len(weights) if len(weights) else 0.0
    return Mean(mean_loss * num_losses, float(weights.sum(dtype=np.float64)) * losses_each)
