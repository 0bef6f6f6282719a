"""What an exported model says of a data set, if it is a classifier."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.model.caller import ModelCaller
from psflow.ps_runtime.model.evaluation import batches_of, predict_batch
from psflow.ps_runtime.model.values import ModelValues
from psflow.ps_runtime.one_thread import one_thread
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.ps_runtime.specs.tables import TableSpec
from psflow.tasks.plots.classifier import ClassScores

__all__ = ["class_scores"]

MAX_ROWS = 20_000
"""Of a data set: the shape of a curve does not change with more, and this runs beside training."""

PROBABILITIES = "probabilities"
"""The prediction that makes a model a classifier, as the canned ones call it."""
ALL_CLASSES = "all_classes"
"""The prediction that says the words of the classes, where labels are words."""


def class_scores(job: JobSpec, export: str, dataset: SplittableInput) -> ClassScores | None:
    """Predict the first `MAX_ROWS` rows of what the first EvalSpec evaluates. Blocks; uses one processor.

    A classifier is a model whose predictions have ``probabilities``, of shape ``(batch, n_classes)``, or ``(batch,)``
    or ``(batch, 1)`` for class 1 of two, and whose labels are class ids, or words that its predictions name.

    Raises
    ------
    OSError
        If the export is not there.
    """
    step, values = _exported(Path(export, "artifacts", "model"))
    caller = ModelCaller(job.model_fn, job.params, job.config, job.model.schema)
    labels: list[NDArray[Any]] = []
    probabilities: list[NDArray[Any]] = []
    words: tuple[str, ...] | None = None
    num_rows = 0
    with one_thread():
        for features, label in itertools.islice(batches_of(dataset), job.eval_specs[0].steps):
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
    """Return the words that class ids stand for, if a model predicts as many classes as the label has words."""
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
