"""What canned models have in common: a head judges the outputs of a network, whatever has computed them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.losses import FloatArray
from psflow.ps_runtime.metrics import Mean, Metric
from psflow.ps_runtime.model.spec import EstimatorSpec, ModeKeys
from psflow.ps_runtime.optimizers.base import TrainOp

__all__ = ["Head", "spec_of_head", "weighted_mean_loss"]


class Head(ABC):
    """What the outputs of a network stand for: loss, predictions, metrics; and what it accepts as labels."""

    __slots__ = ()

    @property
    @abstractmethod
    def num_outputs(self) -> int:
        """How many outputs of the network each example needs."""

    @abstractmethod
    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `loss` would refuse, before anything starts.

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
    def loss(self, labels: Any, outputs: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean loss of a batch and its gradient with respect to `outputs`, ``(batch, num_outputs)``.

        `weights`, ``(batch,)``, multiply the losses of the examples; the divisor of the mean is the number of examples.

        Raises
        ------
        InputError
            If the labels are not what `check_labels` accepts, or there is not one for each example.
        """

    @abstractmethod
    def predictions(self, outputs: FloatArray) -> dict[str, NDArray[Any]]:
        """Return the predictions by name, each of shape ``(batch, ...)``."""

    @abstractmethod
    def metrics(
        self,
        labels: Any,
        predictions: Mapping[str, NDArray[Any]],
        loss: float,
        weights: FloatArray | None = None,
    ) -> dict[str, Metric]:
        """Return the metrics of a batch, weighted by `weights`; `loss` is its mean loss."""


def weighted_mean_loss(loss: float, num_elements: int, weights: FloatArray | None) -> Mean:
    """Return the metric that is the mean of the losses of all examples, by their weights.

    Parameters
    ----------
    loss : float
        Of a batch: the sum of its weighted losses, divided by `num_elements`.
    num_elements : int
        Its examples, times the numbers of a label.
    weights : (batch,) or None
        As `Head.loss` was given.
    """
    if weights is None:
        return Mean(loss * num_elements, float(num_elements))
    elements_each = num_elements / len(weights) if len(weights) else 0.0
    return Mean(loss * num_elements, float(weights.sum(dtype=np.float64)) * elements_each)


def spec_of_head(
    head: Head,
    mode: ModeKeys,
    labels: Any,
    outputs: FloatArray,
    weights: FloatArray | None,
    train: Callable[[FloatArray], TrainOp | Sequence[TrainOp]],
) -> EstimatorSpec:
    """Return what a canned model_fn answers.

    Predictions are computed in EVAL and PREDICT, where somebody reads them.

    Parameters
    ----------
    head : Head
        What `outputs` stand for.
    mode : ModeKeys
        That of the call.
    labels : array, or None in PREDICT
        Of the batch.
    outputs : (batch, num_outputs)
        Of the network.
    weights : (batch,) or None
        Of the examples, in TRAIN and EVAL; None: all weigh alike.
    train : callable
        Returns the train_op, given the gradient of the loss with respect to `outputs`; called in TRAIN.
    """
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=head.predictions(outputs))
    loss, gradient = head.loss(labels, outputs, weights)
    if mode == ModeKeys.EVAL:
        predictions = head.predictions(outputs)
        measured = head.metrics(labels, predictions, loss, weights)
        return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=measured)
    return EstimatorSpec(mode, loss=loss, train_op=train(gradient))
