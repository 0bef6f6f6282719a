"""The head of multi-label classifiers: loss, predictions and metrics for any number of classes per example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime import metrics
from psflow.ps_runtime.columns.texts import decoded
from psflow.ps_runtime.errors import InputError, LabelError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.losses import FloatArray, Reduction, logistic, sigmoid_cross_entropy
from psflow.ps_runtime.model.canned.arguments import (
    check,
    class_faults,
    loss_faults,
    metric_class_faults,
    name_faults,
    threshold_faults,
)
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
    ids_of_names,
    names_of_classes,
    threshold_metrics,
)
from psflow.ps_runtime.model.export.outputs import ClassificationOutput, ExportOutput
from psflow.ps_runtime.specs.schema import InputSchema


@dataclass(frozen=True, slots=True)
class MultiLabelHead(Head):
    """One logit for each class; its logistic function is the probability that an example has the class.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.
    weight_column : str, optional
        The feature that holds the weights of the examples.
    thresholds : sequence of float
        Numbers between 0 and 1. Each adds accuracy, precision and recall, over all classes, of predicting the classes
        whose probability is larger.
    label_vocabulary : sequence of str, optional
        The class names. Labels may then be names: ``(batch, k)`` strings, in any order, padded with empty strings where
        an example has fewer than k.
    loss_reduction : Reduction or str
        Reduction of the losses of a batch, each the mean over the classes of an example, to one number.
    classes_for_class_based_metrics : sequence of int or str
        The classes with metrics of their own, by id or by name.
    name : str, optional
        Suffix of the metric names.

    Raises
    ------
    UsageError
        If an argument is invalid, with all faults in one message.

    Notes
    -----
    Labels are ``(batch, n_classes)``: 1 for the classes of an example, else 0.
    """

    n_classes: Annotated[int, Key("Number of classes, of which an example may have several.", ge=2)]
    weight_column: WeightColumn = None
    thresholds: Annotated[
        Sequence[float], Key("Further thresholds of accuracy, precision and recall, between 0 and 1.")
    ] = ()
    label_vocabulary: Annotated[Sequence[str] | None, Key("Class names, where labels of arrays are strings.")] = None
    loss_reduction: LossReduction = Reduction.SUM_OVER_BATCH_SIZE
    _: KW_ONLY
    classes_for_class_based_metrics: Annotated[Sequence[int | str], Key("Classes with metrics of their own.")] = ()
    name: str | None = None

    def __post_init__(self) -> None:
        for field in ("thresholds", "classes_for_class_based_metrics"):
            object.__setattr__(self, field, () if getattr(self, field) is None else getattr(self, field))
        faults = class_faults(self.n_classes, self.label_vocabulary, at_least=2)
        faults += [*threshold_faults(self.thresholds), *loss_faults(self.weight_column, self.loss_reduction)]
        own = self.classes_for_class_based_metrics
        faults += [*metric_class_faults(own, self.n_classes, self.label_vocabulary), *name_faults(self.name)]
        check("MultiLabelHead", faults if self.n_classes is not None else ["n_classes is None, expected an integer"])
        object.__setattr__(self, "n_classes", int(self.n_classes))
        object.__setattr__(self, "thresholds", tuple(map(float, self.thresholds)))
        object.__setattr__(self, "loss_reduction", Reduction(self.loss_reduction))
        object.__setattr__(self, "classes_for_class_based_metrics", tuple(own))
        if self.label_vocabulary is not None:
            object.__setattr__(self, "label_vocabulary", tuple(self.label_vocabulary))

    @property
    def logits_dimension(self) -> int:
        """A logit for each class."""
        return self.n_classes

    @property
    def losses_each(self) -> int:
        """One: the mean over the classes."""
        return 1

    def reading(self, schema: InputSchema) -> Self:
        """Return the head with the weights of a training input; see `Head.reading`."""
        if schema.classes is not None:
            raise InputError(
                (f"the label {schema.label!r} is one class per record, but MultiLabelHead needs any number of them",)
            )
        return replace(self, weight_column=weight_of_input(self.weight_column, schema))

    def check_labels(self, labels: Any, where: str) -> None:
        """Refuse labels that `mean_loss` would refuse; see `Head.check_labels`."""
        self._events(labels, (np.shape(labels) or (1,))[0], where)

    def mean_loss(self, labels: Any, logits: FloatArray, weights: FloatArray | None = None) -> tuple[float, FloatArray]:
        """Return the mean cross entropy of a batch and its gradient; see `Head.mean_loss`."""
        return sigmoid_cross_entropy(self._events(labels, len(logits)), logits, weights)

    def predictions(self, logits: FloatArray) -> dict[str, NDArray[Any]]:
        """Return the predictions of a batch.

        Returns
        -------
        dict of str to array
            ``logits``, ``probabilities`` and ``classes``, the names of all classes, ``(batch, n_classes)``.
        """
        names = names_of_classes(self.n_classes, self.label_vocabulary)
        classes = all_class_predictions(len(logits), names)["all_classes"]
        return {"logits": logits, "probabilities": logistic(logits), "classes": classes}

    def measured(
        self, labels: Any, predictions: Predictions, mean_loss: float, weights: FloatArray | None
    ) -> dict[str, metrics.Metric]:
        """Return the metrics of a batch over all classes, and those of single classes; see `Head.measured`."""
        probabilities = predictions["probabilities"]
        events = self._events(labels, len(probabilities))
        measured: dict[str, metrics.Metric] = {
            **area_metrics(events, probabilities, weights),
            "average_loss": weighted_mean_loss(mean_loss, len(events), weights),
            **threshold_metrics(events, probabilities, self.thresholds, weights),
        }
        for each in self.classes_for_class_based_metrics:
            class_id, ending = self._class(each)
            of_class, events_of_class = probabilities[:, class_id], events[:, class_id]
            measured[f"probability_mean/{ending}"] = metrics.mean(of_class, weights)
            for name, area in area_metrics(events_of_class, of_class, weights).items():
                measured[f"{name}/{ending}"] = area
        return measured

    def outputs(self, predictions: Predictions) -> dict[str, ExportOutput]:
        """Return the signature ``classification``; see `Head.outputs`."""
        return {"classification": ClassificationOutput(predictions["probabilities"], predictions["classes"])}

    def _class(self, each: int | str) -> tuple[int, str]:
        """Return the id of a class, and the suffix of its metric names."""
        if self.label_vocabulary is None:
            return int(each), f"class{each}"
        class_id = self.label_vocabulary.index(each) if isinstance(each, str) else int(each)
        return class_id, self.label_vocabulary[class_id]

    def _events(self, labels: Any, rows: int, where: str = "the batch") -> NDArray[Any]:
        """Return labels as ``(rows, n_classes)`` numbers 0 and 1."""
        if labels is None:
            raise InputError((f"a classifier needs labels, {where} has none; return (features, labels) from input_fn",))
        given = decoded(np.asarray(labels), f"the labels of {where}")
        if given.dtype.kind == "U" and self.label_vocabulary is not None and given.ndim == 2 and len(given) == rows:
            return self._events_of_names(given, self.label_vocabulary, where)
        shape = (rows, self.n_classes)
        if given.shape != shape:
            expected = f"labels of shape {shape} for the {rows} examples of {where}"
            raise InputError((f"expected {expected}, got {given.shape}; 1 for each class that an example has, else 0",))
        if given.dtype.kind not in "biuf":
            raise InputError(
                (f"expected labels 0 and 1 for each class, got {given.dtype} such as {given[:1].tolist()}",)
            )
        is_event = (given == 0) | (given == 1)
        if not is_event.all():
            row, place = (int(axis[0]) for axis in np.nonzero(~is_event))
            raise LabelError(row, where, f"has {given[row, place]} for class {place}, expected 0 or 1")
        return given

    def _events_of_names(self, names: NDArray[np.str_], vocabulary: Sequence[str], where: str) -> NDArray[np.int64]:
        rows, places = np.nonzero(names != "")
        try:
            ids = ids_of_names(names[rows, places], vocabulary, where)
        except LabelError as error:
            raise LabelError(int(rows[error.row]), where, error.reason) from None
        events = np.zeros((len(names), self.n_classes), np.int64)
        events[rows, ids] = 1
        return events
