"""Draws learning curves, and plots of an exported classifier on a data set."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.collector import collector_at_rest
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import batches_of, predict_batch
from psflow.ps_runtime.model.export.directory import local_export
from psflow.ps_runtime.one_thread import one_thread
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.variables import TableSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 100


def import_libraries() -> None:
    """Import what the functions of this module import, for more than a second, and read fonts by a first plot."""
    with collector_at_rest():
        import sklearn.metrics  # noqa: F401 - for its later users

        figure = new_figure(1.0, 1.0)
        figure.subplots()
        png(figure)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; sizes in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def png(figure: Figure) -> bytes:
    """Return the bytes of a PNG image."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer, canvas = io.BytesIO(), FigureCanvasAgg(figure)
    print_png: Any = canvas.print_png  # without types; savefig draws everything twice
    print_png(buffer)
    return buffer.getvalue()


Curve = Sequence[tuple[int, float]]
"""Pairs of global_step and value."""

MAX_METRICS = 6
"""Maximum number of panels beside that of the loss."""
COLUMNS = 3


def learning_curves(training_loss: Curve, evaluations: Mapping[str, Mapping[str, Curve]], best: int | None) -> bytes:
    """Return a PNG with the loss of training and evaluation, and the other metrics of evaluations, by global_step."""
    panels: dict[str, dict[str, Curve]] = {"loss": {"train": training_loss} if training_loss else {}}
    for name, curves in evaluations.items():
        for metric, curve in curves.items():
            if metric in panels or len(panels) <= MAX_METRICS:
                panels.setdefault(metric, {})[name] = sorted(curve)
    rows = -(-len(panels) // COLUMNS)
    columns = min(COLUMNS, len(panels))
    figure = new_figure(5.0 * columns, 3.6 * rows)
    for axes, (metric, lines) in zip(figure.subplots(rows, columns, squeeze=False).flat, panels.items(), strict=False):
        for name, curve in lines.items():
            marker = "" if name == "train" else "."
            axes.plot([step for step, _ in curve], [value for _, value in curve], marker=marker, label=name)
        if best is not None:
            axes.axvline(best, color="grey", linestyle=":", linewidth=1, label=f"best, {best}")
        axes.set(title=metric, xlabel="global_step")
        if lines:
            axes.legend(fontsize="small")
    for axes in list(figure.axes)[len(panels) :]:
        axes.remove()
    return png(figure)


MAX_CELLS_WITH_NUMBERS = 20
"""Number of classes above which the numbers of a confusion matrix are unreadable."""
MAX_CURVES = 20
"""Maximum number of classes with a curve."""
MAX_CHARACTERS = 20
"""Maximum number of characters of a class name."""


@dataclass(frozen=True)
class ClassScores:
    """Probabilities and labels of examples."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.floating[Any]]
    classes: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes in plots: a string of at most 20 characters, or the id."""
        if self.classes is None:
            return tuple(map(str, range(self.probabilities.shape[1])))
        return tuple(word if len(word) <= MAX_CHARACTERS else word[: MAX_CHARACTERS - 1] + "…" for word in self.classes)


def classifier_plots(scores: ClassScores, title: str) -> dict[str, bytes]:
    """Return PNG images by file name: ``confusion_matrix.png``, ``roc.png``, ``precision_recall.png``.

    With two classes the curves are those of class 1; with more, one for each class against the rest, if both have
    examples.
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


MAX_ROWS = 20_000
"""Maximum number of rows: more do not change the shape of a curve, and scoring competes with training."""

PROBABILITIES = "probabilities"
"""Prediction that marks a model as a classifier; name as in canned models."""
ALL_CLASSES = "all_classes"
"""Prediction with the names of the classes, if labels are strings."""


def class_scores(
    job: JobSpec, export: str, dataset: SplittableInput, is_given_up: Callable[[], bool] = lambda: False
) -> ClassScores | None:
    """Predict the first `MAX_ROWS` rows of the first EvalSpec; None if the model is not a classifier, or given up.

    A classifier is a model whose predictions have ``probabilities``, of shape ``(batch, n_classes)``, or ``(batch,)``
    or ``(batch, 1)`` for class 1 of two, and whose labels are class ids, or strings that its predictions name.
    Blocks; uses one processor.

    Raises OSError if the export is missing.
    """
    with local_export(export) as folder:
        step, values = _exported(Path(folder, "artifacts", "model"))
    caller = ModelCaller(job.model_fn, job.params, job.config, job.model.schema)
    labels: list[NDArray[Any]] = []
    probabilities: list[NDArray[Any]] = []
    words: tuple[str, ...] | None = None
    num_rows = 0
    with one_thread():
        for features, label in itertools.islice(batches_of(dataset), job.eval_specs[0].steps):
            if is_given_up():
                return None
            batch = _batch_scores(predict_batch(caller, features, values, step), label)
            if batch is None:
                return None
            labels.append(batch.labels)
            probabilities.append(batch.probabilities)
            words = batch.classes
            num_rows += len(batch.labels)
            if num_rows >= MAX_ROWS:
                break
    if not num_rows:
        return None
    scores = np.concatenate(probabilities)[:MAX_ROWS]
    classes = _classes(job.model.schema, scores.shape[1]) if words is None else words
    return ClassScores(np.concatenate(labels)[:MAX_ROWS], scores, classes)


def _classes(schema: InputSchema | None, n_classes: int) -> tuple[str, ...] | None:
    """Return the names of class ids, if the model predicts as many classes as the label has categories."""
    classes = None if schema is None else schema.classes
    return classes if classes is not None and len(classes) == n_classes else None


def _exported(folder: Path) -> tuple[int, ModelValues]:
    """Return the global_step of an exported model, and its values."""
    from safetensors.numpy import load_file

    from psflow.ps_runtime.tables.table import Table

    config = json.loads((folder / "config.json").read_text())
    tables = {}
    for index, facts in enumerate(config["tables"]):
        table = tables[facts["name"]] = Table(TableSpec(**facts), None)
        table.load(load_file(folder / f"table_{index}.safetensors"))
    return int(config["global_step"]), ModelValues(load_file(folder / "variables.safetensors"), tables)


def _batch_scores(predictions: Mapping[str, NDArray[Any]], labels: Any) -> ClassScores | None:
    if labels is None or PROBABILITIES not in predictions:
        return None
    probabilities = np.asarray(predictions[PROBABILITIES])
    if probabilities.ndim == 1:
        probabilities = probabilities[:, np.newaxis]
    if probabilities.ndim == 2 and probabilities.shape[1] == 1:
        probabilities = np.hstack([1 - probabilities, probabilities])
    class_ids = np.asarray(labels)
    if probabilities.ndim != 2 or class_ids.shape not in ((len(probabilities),), (len(probabilities), 1)):
        return None
    class_ids = class_ids.reshape(-1)
    words: tuple[str, ...] | None = None
    if class_ids.dtype.kind == "U" and ALL_CLASSES in predictions:
        words = tuple(np.asarray(predictions[ALL_CLASSES])[0].tolist())
        id_of = {word: place for place, word in enumerate(words)}
        class_ids = np.array([id_of.get(word, -1) for word in class_ids.tolist()])
    if class_ids.dtype.kind not in "biuf" or not np.isfinite(probabilities).all():
        return None
    whole = class_ids.astype(np.int64)
    if not ((whole == class_ids) & (whole >= 0) & (whole < probabilities.shape[1])).all():
        return None
    return ClassScores(whole, probabilities, words)
