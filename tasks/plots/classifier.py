"""Plots of a classifier: its confusion matrix, ROC and precision-recall curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.tasks.plots.figures import new_figure, png

__all__ = ["ClassScores", "classifier_plots"]

MAX_CELLS_WITH_NUMBERS = 20
"""Classes; of more the numbers of a confusion matrix could not be read."""
MAX_CURVES = 20
"""Classes with a curve each; of more the first."""
MAX_CHARACTERS = 20
"""Of the name of a class."""


@dataclass(frozen=True)
class ClassScores:
    """What a classifier says of examples, and what they are."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.floating[Any]]
    classes: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What plots call the classes: a word cut to 20 characters, or the id."""
        if self.classes is None:
            return tuple(map(str, range(self.probabilities.shape[1])))
        return tuple(word if len(word) <= MAX_CHARACTERS else word[: MAX_CHARACTERS - 1] + "…" for word in self.classes)


def classifier_plots(scores: ClassScores, title: str) -> dict[str, bytes]:
    """Return PNG images by file name: ``confusion_matrix.png``, ``roc.png``, ``precision_recall.png``.

    Of two classes the curves are those of class 1; of more, one for each class against the rest, as far as it has
    examples and so do others: a curve of a class that is not there, or of nothing else, does not exist.
    """
    from sklearn.metrics import PrecisionRecallDisplay, RocCurveDisplay

    plots = {"confusion_matrix.png": _confusion_matrix(scores, title)}
    if _shown_classes(scores):
        rates = {"xlabel": "false positive rate", "ylabel": "true positive rate"}
        plots["roc.png"] = _curves(scores, RocCurveDisplay.from_predictions, "lower right", title=title, **rates)
        axes = {"xlabel": "recall", "ylabel": "precision"}
        draw = PrecisionRecallDisplay.from_predictions
        plots["precision_recall.png"] = _curves(scores, draw, "lower left", title=title, **axes)
    return plots


def _confusion_matrix(scores: ClassScores, title: str) -> bytes:
    from sklearn.metrics import ConfusionMatrixDisplay, confusion_matrix

    n_classes = scores.probabilities.shape[1]
    counts = confusion_matrix(scores.labels, scores.probabilities.argmax(axis=1), labels=range(n_classes))
    side = float(np.clip(0.6 * n_classes, 4.5, 12))
    figure = new_figure(side + 1, side)
    few = n_classes <= MAX_CELLS_WITH_NUMBERS
    display = ConfusionMatrixDisplay(counts, display_labels=scores.names if few else None)
    axes = figure.subplots()
    display.plot(ax=axes, include_values=few, cmap="Blues", values_format="d")
    if not few:
        axes.set(xticks=[], yticks=[])
    axes.set(title=title, xlabel="predicted class", ylabel="true class")
    return png(figure)


def _curves(scores: ClassScores, draw: Callable[..., object], corner: str, **labels: str) -> bytes:
    figure = new_figure(6.0, 5.0)
    axes: Any = figure.subplots()
    classes = _shown_classes(scores)
    for class_id in classes:
        draw(
            scores.labels == class_id,
            scores.probabilities[:, class_id],
            name=f"class {scores.names[class_id]}",
            ax=axes,
        )
    axes.set(**labels)
    axes.legend(fontsize="small" if len(classes) < 8 else "x-small", loc=corner)
    return png(figure)


def _shown_classes(scores: ClassScores) -> list[int]:
    n_classes = scores.probabilities.shape[1]
    counts = np.bincount(scores.labels, minlength=n_classes)
    candidates = [1] if n_classes == 2 else range(n_classes)
    return [c for c in candidates if 0 < counts[c] < len(scores.labels)][:MAX_CURVES]
