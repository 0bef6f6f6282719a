"""What a classifier does with logits: loss, predictions, metrics; and what it accepts as labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.losses import FloatArray, check_class_ids, softmax_cross_entropy
from psflow.ps_runtime.model.canned.base import Head

__all__ = ["ClassifierHead"]


@dataclass(frozen=True, slots=True)
class ClassifierHead(Head):
    """Softmax over one logit for each class, of two classes too.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2; labels are the integers below it.
    """

    n_classes: int

    @property
    def num_outputs(self) -> int:
        """A logit for each class."""
        return self.n_classes

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `loss` would refuse; see `Head.check_labels`."""
        check_class_ids(self._class_ids(labels, (np.shape(labels) or (1,))[0], where), self.n_classes, where)

    def loss(self, labels: Any, outputs: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean cross entropy of a batch and its gradient with respect to the logits.

        Raises
        ------
        InputError
            If a label is no integer in [0, n_classes), or there is not one for each example.
        """
        return softmax_cross_entropy(self._class_ids(labels, len(outputs)), outputs)

    def predictions(self, outputs: FloatArray) -> dict[str, NDArray[Any]]:
        """Return ``logits`` and ``probabilities``, ``(batch, n_classes)``, and ``class_ids``, ``(batch,)`` int64."""
        probabilities = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        return {"logits": outputs, "probabilities": probabilities, "class_ids": outputs.argmax(axis=1)}

    def metrics(self, labels: Any, predictions: Mapping[str, NDArray[Any]], loss: float) -> dict[str, metrics.Metric]:
        """Return the metrics of a batch; `loss` is its mean loss. A binary classifier has some more."""
        class_ids, guesses = self._class_ids(labels, len(predictions["logits"])), predictions["class_ids"]
        measured: dict[str, metrics.Metric] = {
            "accuracy": metrics.accuracy(class_ids, guesses),
            "average_loss": metrics.mean(loss, weights=len(class_ids)),
        }
        if self.n_classes > 2:
            return measured
        positive = predictions["probabilities"][:, 1]
        return measured | {
            "accuracy_baseline": metrics.accuracy_baseline(class_ids),
            "auc": metrics.auc(class_ids, positive),
            "auc_precision_recall": metrics.auc(class_ids, positive, curve="PR"),
            "label/mean": metrics.mean(class_ids),
            "precision": metrics.precision(class_ids, guesses),
            "prediction/mean": metrics.mean(positive),
            "recall": metrics.recall(class_ids, guesses),
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
