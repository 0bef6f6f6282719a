"""One evaluation: metrics of a model over an input."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ps_runtime.data.dataset import Dataset
from ps_runtime.errors import InputError, ModelFnError
from ps_runtime.metrics import Metric, mean
from ps_runtime.model.caller import ModelCaller, check_loss
from ps_runtime.model.spec import EstimatorSpec, ModeKeys
from ps_runtime.model.values import ModelValues

if TYPE_CHECKING:
    from ps_runtime.checkpoint.reader import CheckpointReader

__all__ = ["batches_of", "evaluate", "predict_batch", "read_values"]

Batch = tuple[Any, Any]


def batches_of(opened: Dataset | Iterator[Batch]) -> Iterator[Batch]:
    """Return the batches of one epoch, in the order of the records."""
    if not isinstance(opened, Dataset):
        return opened
    starts = range(0, opened.num_records, opened.batch_size)
    return (opened.read(0, start, min(start + opened.batch_size, opened.num_records)) for start in starts)


def read_values(reader: CheckpointReader) -> ModelValues:
    """Return the values of the whole model of a checkpoint. Blocks.

    Raises
    ------
    CheckpointError
        If bytes of it are missing or have changed.
    """
    model = reader.manifest.model
    return ModelValues(
        reader.variables(variable.name for variable in model.variables),
        {table.name: reader.table(table) for table in model.tables},
    )


def evaluate(
    caller: ModelCaller,
    opened: Dataset | Iterator[Batch],
    values: ModelValues,
    global_step: int,
    steps: int | None,
) -> dict[str, float]:
    """Return the metrics of a model over an input, ``loss`` (mean over batches) and ``global_step`` among them.

    Parameters
    ----------
    caller : ModelCaller
    opened : Dataset or iterator of (features, labels)
        One epoch of it is read.
    values : ModelValues
    global_step : int
    steps : int or None
        At most so many batches; None: to the end.

    Raises
    ------
    InputError
        If there is no batch.
    ModelFnError
        If model_fn measures other things on a later batch than on the first.
    """
    merged: dict[str, Metric] = {}
    for features, labels in itertools.islice(batches_of(opened), steps):
        spec = caller.apply(features, labels, ModeKeys.EVAL, values, global_step)
        check_loss(spec.loss, caller.name)
        measured: dict[str, Metric] = {**spec.eval_metric_ops, "loss": mean(np.asarray([spec.loss]))}
        if merged and measured.keys() != merged.keys():
            raise _other_metrics(caller.name, measured, merged)
        merged = {name: merged[name].merge(metric) if merged else metric for name, metric in measured.items()}
    if not merged:
        raise InputError(("the input_fn for evaluation gave no batch at all",))
    return {name: float(metric.result()) for name, metric in merged.items()} | {"global_step": global_step}


def predict_batch(caller: ModelCaller, features: Any, values: ModelValues, global_step: int) -> dict[str, NDArray[Any]]:
    """Return the predictions for a batch, each of shape (batch, ...)."""
    spec: EstimatorSpec = caller.apply(features, None, ModeKeys.PREDICT, values, global_step)
    predictions = spec.predictions if isinstance(spec.predictions, Mapping) else {"predictions": spec.predictions}
    return {name: np.asarray(value) for name, value in predictions.items()}


def _other_metrics(name: str, measured: Mapping[str, Metric], first: Mapping[str, Metric]) -> ModelFnError:
    return ModelFnError(
        (
            f"{name} returned the metrics {', '.join(sorted(measured))}, but {', '.join(sorted(first))} for the first "
            "batch; the first call in a mode fixes the metrics",
        )
    )
