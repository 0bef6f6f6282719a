"""What a classifier does with logits: loss, predictions, metrics; and what it accepts as labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.losses import FloatArray, check_class_ids, softmax, softmax_cross_entropy
from psflow.ps_runtime.model.canned.base import Head, weighted_mean_loss
from psflow.ps_runtime.specs.schema import InputSchema

__all__ = ["ClassifierHead"]

MAX_SHOWN = 10
"""Classes that an error lists."""


@dataclass(frozen=True, slots=True)
class ClassifierHead(Head):
    """Softmax over one logit for each class, of two classes too.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2; labels are the integers below it.
    classes : tuple of str, optional
        The words that the labels 0, 1, ... stand for.
    """

    n_classes: int
    classes: tuple[str, ...] | None = None

    @classmethod
    def reading(cls, n_classes: int | None, schema: InputSchema) -> Self:
        """Return the head of a classifier of these labels.

        Parameters
        ----------
        n_classes : int or None
            As somebody has set it; None: as many as there are words, or 2 where labels are numbers.
        schema : InputSchema
            Of the training input.

        Raises
        ------
        InputError
            If there is only one word, or another number of words than `n_classes`.
        """
        words = schema.classes
        if words is None:
            return cls(2 if n_classes is None else n_classes)
        shown = ", ".join(map(repr, words[:MAX_SHOWN])) + (", ..." if len(words) > MAX_SHOWN else "")
        if n_classes not in (None, len(words)):
            raise InputError(
                (
                    f"n_classes is {n_classes}, but the label {schema.label!r} has {len(words)} classes, {shown}; "
                    "leave n_classes out, or list the classes of the label",
                )
            )
        if len(words) < 2:
            raise InputError(
                (f"the label {schema.label!r} has one class, {shown}: expected at least 2 to tell from each other",)
            )
        return cls(len(words), words)

    @property
    def num_outputs(self) -> int:
        """A logit for each class."""
        return self.n_classes

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `loss` would refuse; see `Head.check_labels`."""
        check_class_ids(self._class_ids(labels, (np.shape(labels) or (1,))[0], where), self.n_classes, where)

    def loss(self, labels: Any, outputs: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean cross entropy of a batch and its gradient with respect to the logits.

        Raises
        ------
        InputError
            If a label is no integer in [0, n_classes), or there is not one for each example.
        """
        return softmax_cross_entropy(self._class_ids(labels, len(outputs)), outputs, weights)

    def predictions(self, outputs: FloatArray) -> dict[str, NDArray[Any]]:
        """Return ``logits`` and ``probabilities``, ``(batch, n_classes)``, and ``class_ids``, ``(batch,)`` int64.

        Where the labels are words, ``classes``, ``(batch,)``, are those of the ids.
        """
        class_ids = outputs.argmax(axis=1)
        made = {"logits": outputs, "probabilities": softmax(outputs), "class_ids": class_ids}
        return made if self.classes is None else made | {"classes": np.array(self.classes)[class_ids]}

    def metrics(
        self,
        labels: Any,
        predictions: Mapping[str, NDArray[Any]],
        loss: float,
        weights: FloatArray | None = None,
    ) -> dict[str, metrics.Metric]:
        """Return the metrics of a batch; `loss` is its mean loss. A binary classifier has some more."""
        class_ids, guesses = self._class_ids(labels, len(predictions["logits"])), predictions["class_ids"]
        measured: dict[str, metrics.Metric] = {
            "accuracy": metrics.accuracy(class_ids, guesses, weights),
            "average_loss": weighted_mean_loss(loss, len(class_ids), weights),
        }
        if self.n_classes > 2:
            return measured
        positive = predictions["probabilities"][:, 1]
        return measured | {
            "accuracy_baseline": metrics.accuracy_baseline(class_ids, weights),
            "auc": metrics.auc(class_ids, positive, weights),
            "auc_precision_recall": metrics.auc(
                class_ids, positive, weights, curve="PR", summation_method="careful_interpolation"
            ),
            "label/mean": metrics.mean(class_ids, weights),
            "precision": metrics.precision(class_ids, guesses, weights),
            "prediction/mean": metrics.mean(positive, weights),
            "recall": metrics.recall(class_ids, guesses, weights),
        }

    def _class_ids(self, labels: Any, rows: int, where: str = "the batch") -> NDArray[np.integer[Any]]:
        """Return `labels` as ``(rows,)`` integers; the range of those that are integers already is not judged here."""
        if labels is None:
            raise InputError((f"a classifier needs labels, {where} has none; let input_fn return (features, labels)",))
        given = np.asarray(labels)
        if given.shape not in ((rows,), (rows, 1)):
            expected = f"labels of shape ({rows},) for the {rows} examples of {where}"
            raise InputError((f"expected {expected}, got {given.shape}; one class id for each",))
        flat: NDArray[Any] = given.reshape(rows)
        if flat.dtype.kind in "iu":
            return flat
        if flat.dtype.kind not in "bf":
            raise InputError(
                (f"expected integer labels, got {flat.dtype} such as {flat[:1].tolist()}; encode them as class ids",)
            )
        whole = (flat >= 0) & (flat < self.n_classes) & (np.floor(flat) == flat)
        if not whole.all():
            row = int(np.argmin(whole))
            raise InputError(
                (f"the label of row {row} of {where} is {flat[row]}, expected an integer in [0, {self.n_classes})",)
            )
        return flat.astype(np.int64)
