"""Heads of canned models: interpret the logits of a network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import InputError, ModelFnError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import FloatArray, Reduction
from psflow.ps_runtime.metrics import Mean, Metric
from psflow.ps_runtime.model.canned.features import read_weights
from psflow.ps_runtime.model.export.outputs import DEFAULT_SIGNATURE, ExportOutput, PredictOutput
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers.base import TrainOp
from psflow.ps_runtime.specs.schema import InputSchema

PREDICT_SIGNATURE = "predict"

Predictions = Mapping[str, NDArray[Any]]

WeightColumn = Annotated[
    str | None,
    Key(
        "Feature that holds the weights of the examples; only for arrays: for tabular files use the weight of the "
        "input."
    ),
]
LossReduction = Annotated[Reduction, Key("Reduction of the losses of a batch to one number.")]


class Head(ABC):
    """Interprets the logits of a network: loss, predictions, metrics; checks labels.

    Attributes
    ----------
    weight_column : str or None
        The feature that holds the weights of the examples; None: equal weights.
    loss_reduction : Reduction
        Reduction of the losses of a batch to one number.
    name : str or None
        Suffix of the metric names, after a ``/``.
    """

    __slots__ = ()

    weight_column: str | None
    loss_reduction: Reduction
    name: str | None

    @property
    @abstractmethod
    def logits_dimension(self) -> int:
        """Number of logits of each example."""

    @property
    @abstractmethod
    def losses_each(self) -> int:
        """Number of losses of each example, which the divisor of SUM_OVER_BATCH_SIZE counts."""

    @abstractmethod
    def reading(self, schema: InputSchema) -> Self:
        """Return the head with the facts of a training input on its labels and weights.

        Raises
        ------
        InputError
            If the facts of the input contradict the head.
        """

    @abstractmethod
    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `mean_loss` would refuse, before anything starts.

        Parameters
        ----------
        labels : array of as many rows as there are examples
            The labels of a whole data set.
        where : str
            Its name in messages, such as ``the train input``.

        Raises
        ------
        InputError
            With the fault and its row.
        """

    @abstractmethod
    def mean_loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean loss of a batch and its gradient with respect to `logits`, ``(batch, logits_dimension)``.

        `weights`, ``(batch,)``, multiply the losses of the examples; the mean is divided by the number of losses.

        Raises
        ------
        InputError
            If `check_labels` rejects the labels, or there is not one for each example.
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
        """Return further outputs of an export, by the names of their signatures."""

    def loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the loss of a batch and its gradient with respect to `logits`, both after `loss_reduction`.

        Raises
        ------
        InputError
            As in `mean_loss`.
        ModelFnError
            If the logits have another shape.
        """
        self._check_logits(logits)
        return self._reduced(*self.mean_loss(labels, logits, weights), weights)

    def metrics(
        self, labels: Any, predictions: Predictions, mean_loss: float, weights: FloatArray | None = None
    ) -> dict[str, Metric]:
        """Return the metrics of a batch by name, weighted by `weights`; `mean_loss` is the mean loss of the batch."""
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
        """Return the EstimatorSpec of a model_fn with this head.

        Predictions are computed in EVAL and PREDICT only.

        Parameters
        ----------
        features : array or mapping of str to array
            Features of the batch, with the weights if there is a `weight_column`; PREDICT does not read them.
        mode : ModeKeys
            The mode of the call.
        logits : (batch, logits_dimension) floats
            The outputs of the network.
        labels : array, or None in PREDICT
            Labels of the batch.
        train_op_fn : callable
            Returns the train_op, given the gradient of the loss with respect to `logits`; called in TRAIN.

        Raises
        ------
        InputError
            If the head rejects labels or weights.
        ModelFnError
            If the logits have another shape.
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
    """The task of a canned model: a head, or a template of a head that the training input completes."""

    @property
    def weight_column(self) -> str | None:
        """The feature that holds the weights of the examples, as the user has set it."""

    def reading(self, schema: InputSchema) -> Head:
        """Return the head for a training input; see `Head.reading`."""


def weight_of_input(weight_column: str | None, schema: InputSchema) -> str | None:
    """Return the feature that holds the weights of a training input; InputError if it differs from `weight_column`."""
    if weight_column not in (None, schema.weight):
        weight = "none" if schema.weight is None else repr(schema.weight)
        raise InputError((f"weight_column is {weight_column!r}, but the weights of the training input are {weight}",))
    return schema.weight


def weighted_mean_loss(mean_loss: float, num_losses: int, weights: FloatArray | None) -> Mean:
    """Return the weighted mean of the losses of all examples as a metric."""
    if weights is None:
        return Mean(mean_loss * num_losses, float(num_losses))
    losses_each = num_losses / len(weights) if len(weights) else 0.0
    return Mean(mean_loss * num_losses, float(weights.sum(dtype=np.float64)) * losses_each)
