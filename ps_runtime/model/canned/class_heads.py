"""Heads of classifiers with two or more classes: loss, predictions and metrics of logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import (
    FloatArray,
    Reduction,
    check_class_ids,
    logistic,
    sigmoid_cross_entropy,
    softmax,
    softmax_cross_entropy,
)
from psflow.ps_runtime.model.canned.arguments import check, class_faults, loss_faults, name_faults, threshold_faults
from psflow.ps_runtime.model.canned.base import (
    Head,
    LossReduction,
    Predictions,
    WeightColumn,
    weight_of_input,
    weighted_mean_loss,
)
from psflow.ps_runtime.model.canned.class_labels import (
    all_class_predictions,
    area_metrics,
    class_ids_of,
    names_of_classes,
    threshold_metrics,
    vocabulary_of,
)
from psflow.ps_runtime.model.export.outputs import ClassificationOutput, ExportOutput, RegressionOutput
from psflow.ps_runtime.specs.schema import InputSchema


@dataclass(frozen=True, slots=True)
class BinaryClassHead(Head):
    """One logit for two classes; its logistic function is the probability of class 1.

    Parameters
    ----------
    weight_column : str, optional
        The feature that holds the weights of the examples.
    thresholds : sequence of float
        Numbers between 0 and 1. Each adds accuracy, precision and recall of predicting class 1 where its probability is
        larger.
    label_vocabulary : sequence of str, optional
        The class names; labels are then names or class ids. Without it labels are 0 and 1, of shape ``(batch,)`` or
        ``(batch, 1)``.
    loss_reduction : Reduction or str
        Reduction of the losses of a batch to one number.
    name : str, optional
        Suffix of the metric names.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.
    """

    weight_column: WeightColumn = None
    thresholds: Annotated[
        Sequence[float], Key("Further thresholds of accuracy, precision and recall, between 0 and 1.")
    ] = ()
    label_vocabulary: Annotated[Sequence[str] | None, Key("Class names, where labels of arrays are strings.")] = None
    loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE
    _: KW_ONLY
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", () if self.thresholds is None else self.thresholds)
        faults = [*class_faults(2, self.label_vocabulary, at_least=2), *threshold_faults(self.thresholds)]
        faults += [*loss_faults(self.weight_column, self.loss_reduction), *name_faults(self.name)]
        check("BinaryClassHead", faults)
        object.__setattr__(self, "thresholds", tuple(map(float, self.thresholds)))
        object.__setattr__(self, "loss_reduction", Reduction(self.loss_reduction))
        if self.label_vocabulary is not None:
            object.__setattr__(self, "label_vocabulary", tuple(self.label_vocabulary))

    @property
    def logits_dimension(self) -> int:
        """One, for class 1."""
        return 1

    @property
    def losses_each(self) -> int:
        """One."""
        return 1

    def reading(self, schema: InputSchema) -> Self:
        """Return the head with the class names and weights of a training input; see `Head.reading`."""
        return replace(
            self,
            weight_column=weight_of_input(self.weight_column, schema),
            label_vocabulary=vocabulary_of(2, self.label_vocabulary, schema),
        )

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `mean_loss` would refuse; see `Head.check_labels`."""
        self._class_ids(labels, (np.shape(labels) or (1,))[0], where)

    def mean_loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean cross entropy of a batch and its gradient; see `Head.mean_loss`."""
        class_ids = self._class_ids(labels, len(logits))
        return sigmoid_cross_entropy(class_ids[:, np.newaxis], logits, weights)

    def predictions(self, logits: FloatArray) -> dict[str, NDArray[Any]]:
        """Return the predictions of a batch.

        Returns
        -------
        dict of str to array
            ``logits`` and ``logistic``, the probability of class 1, ``(batch, 1)``; ``probabilities``, ``(batch, 2)``;
            ``class_ids``, int64, and ``classes``, their names, ``(batch, 1)``; ``all_class_ids``, int32, and
            ``all_classes``, ``(batch, 2)``.
        """
        positive = logistic(logits)
        class_ids = (logits > 0).astype(np.int64)
        names = names_of_classes(2, self.label_vocabulary)
        return {
            "logits": logits,
            "logistic": positive,
            "probabilities": np.concatenate([logistic(-logits), positive], axis=1),
            "class_ids": class_ids,
            "classes": names[class_ids],
            **all_class_predictions(len(logits), names),
        }

    def measured(
        self, labels: Any, predictions: Predictions, mean_loss: float, weights: FloatArray | None
    ) -> dict[str, metrics.Metric]:
        """Return the metrics of a batch, including those of each threshold; see `Head.measured`."""
        positive, guesses = predictions["logistic"][:, 0], predictions["class_ids"][:, 0]
        class_ids = self._class_ids(labels, len(guesses))
        return {
            "accuracy": metrics.accuracy(class_ids, guesses, weights),
            "accuracy_baseline": metrics.accuracy_baseline(class_ids, weights),
            **area_metrics(class_ids, positive, weights),
            "average_loss": weighted_mean_loss(mean_loss, len(class_ids), weights),
            "label/mean": metrics.mean(class_ids, weights),
            "precision": metrics.precision(class_ids, guesses, weights),
            "prediction/mean": metrics.mean(positive, weights),
            "recall": metrics.recall(class_ids, guesses, weights),
            **threshold_metrics(class_ids, positive, self.thresholds, weights),
        }

    def outputs(self, predictions: Predictions) -> dict[str, ExportOutput]:
        """Return the signatures ``classification`` and ``regression``; see `Head.outputs`."""
        return {
            "classification": ClassificationOutput(predictions["probabilities"], predictions["all_classes"]),
            "regression": RegressionOutput(predictions["logistic"]),
        }

    def _class_ids(self, labels: Any, rows: int, where: str = "the batch") -> NDArray[np.integer[Any]]:
        class_ids = class_ids_of(labels, rows, 2, self.label_vocabulary, where)
        check_class_ids(class_ids, 2, where)
        return class_ids


@dataclass(frozen=True, slots=True)
class MultiClassHead(Head):
    """Softmax over one logit for each of three or more classes.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 3; for two classes use `BinaryClassHead`.
    weight_column : str, optional
        The feature that holds the weights of the examples.
    label_vocabulary : sequence of str, optional
        The class names; labels are then names or class ids. Without it labels are integers in [0, n_classes), of shape
        ``(batch,)`` or ``(batch, 1)``.
    loss_reduction : Reduction or str
        Reduction of the losses of a batch to one number.
    name : str, optional
        Suffix of the metric names.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.
    """

    n_classes: Annotated[int, Key("Number of classes.", ge=3)]
    weight_column: WeightColumn = None
    label_vocabulary: Annotated[Sequence[str] | None, Key("Class names, where labels of arrays are strings.")] = None
    loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE
    _: KW_ONLY
    name: str | None = None

    def __post_init__(self) -> None:
        faults = class_faults(self.n_classes, self.label_vocabulary, at_least=3)
        faults += [*loss_faults(self.weight_column, self.loss_reduction), *name_faults(self.name)]
        check("MultiClassHead", faults if self.n_classes is not None else ["n_classes is None, expected an integer"])
        object.__setattr__(self, "n_classes", int(self.n_classes))
        object.__setattr__(self, "loss_reduction", Reduction(self.loss_reduction))
        if self.label_vocabulary is not None:
            object.__setattr__(self, "label_vocabulary", tuple(self.label_vocabulary))

    @property
    def logits_dimension(self) -> int:
        """A logit for each class."""
        return self.n_classes

    @property
    def losses_each(self) -> int:
        """One."""
        return 1

    def reading(self, schema: InputSchema) -> Self:
        """Return the head with the class names and weights of a training input; see `Head.reading`."""
        return replace(
            self,
            weight_column=weight_of_input(self.weight_column, schema),
            label_vocabulary=vocabulary_of(self.n_classes, self.label_vocabulary, schema),
        )

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `mean_loss` would refuse; see `Head.check_labels`."""
        rows = (np.shape(labels) or (1,))[0]
        check_class_ids(class_ids_of(labels, rows, self.n_classes, self.label_vocabulary, where), self.n_classes, where)

    def mean_loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean cross entropy of a batch and its gradient; see `Head.mean_loss`."""
        return softmax_cross_entropy(
            class_ids_of(labels, len(logits), self.n_classes, self.label_vocabulary), logits, weights
        )

    def predictions(self, logits: FloatArray) -> dict[str, NDArray[Any]]:
        """Return the predictions of a batch.

        Returns
        -------
        dict of str to array
            ``logits`` and ``probabilities``, ``(batch, n_classes)``; ``class_ids``, int64, and ``classes``, their
            names, ``(batch, 1)``; ``all_class_ids``, int32, and ``all_classes``, ``(batch, n_classes)``.
        """
        class_ids = logits.argmax(axis=1)[:, np.newaxis]
        names = names_of_classes(self.n_classes, self.label_vocabulary)
        return {
            "logits": logits,
            "probabilities": softmax(logits),
            "class_ids": class_ids,
            "classes": names[class_ids],
            **all_class_predictions(len(logits), names),
        }

    def measured(
        self, labels: Any, predictions: Predictions, mean_loss: float, weights: FloatArray | None
    ) -> dict[str, metrics.Metric]:
        """Return ``accuracy`` and ``average_loss`` of a batch; see `Head.measured`."""
        guesses = predictions["class_ids"][:, 0]
        class_ids = class_ids_of(labels, len(guesses), self.n_classes, self.label_vocabulary)
        return {
            "accuracy": metrics.accuracy(class_ids, guesses, weights),
            "average_loss": weighted_mean_loss(mean_loss, len(class_ids), weights),
        }

    def outputs(self, predictions: Predictions) -> dict[str, ExportOutput]:
        """Return the signature ``classification``; see `Head.outputs`."""
        return {"classification": ClassificationOutput(predictions["probabilities"], predictions["all_classes"])}


@dataclass(frozen=True, slots=True)
class ClassifierSpec:
    """The classes of a classifier, as far as the user has set them."""

    n_classes: int | None = None
    weight_column: str | None = None
    label_vocabulary: Sequence[str] | None = None
    loss_reduction: Reduction = Reduction.SUM_OVER_BATCH_SIZE

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss_reduction", Reduction(self.loss_reduction))
        if self.label_vocabulary is not None:
            object.__setattr__(self, "label_vocabulary", tuple(self.label_vocabulary))

    def reading(self, schema: InputSchema) -> BinaryClassHead | MultiClassHead:
        """Return the head for a training input: with one logit for two classes.

        Raises InputError if the label of tabular files has other classes than the user has set.
        """
        names = vocabulary_of(self.n_classes, self.label_vocabulary, schema)
        n_classes = (2 if names is None else len(names)) if self.n_classes is None else self.n_classes
        head = (
            BinaryClassHead(self.weight_column, (), names, self.loss_reduction)
            if n_classes == 2
            else MultiClassHead(n_classes, self.weight_column, names, self.loss_reduction)
        )
        return head.reading(schema)
