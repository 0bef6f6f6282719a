"""What a Dask worker does: predict one partition. It needs neither Prefect nor the flow."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.cluster.leaving import leave_quickly
from psflow.ps_runtime.config.environment import telemetry_off
from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.one_thread import one_thread
from psflow.tasks.prediction.inputs import PredictionInput, key_columns, rows_for_model, same_input
from psflow.tasks.prediction.model import ModelInfo, load_model
from psflow.tasks.prediction.output import Partition, PredictionFolder, to_csv

__all__ = ["predict_partition"]

BATCH_ROWS = 1024


def predict_partition(model: ModelInfo, source: PredictionInput, digest: str, part: Partition, output: str) -> int:
    """Predict one partition and write its file; return its number of rows.

    Parameters
    ----------
    model : ModelInfo
        A model whose folder this process can read.
    source : PredictionInput
        Of the rows, and how they are read.
    digest : str
        Of its data, as the flow has seen them.
    part : Partition
        Which rows, and the file they go to.
    output : str
        The folder of the predictions.

    Raises
    ------
    InputError
        If this process cannot read the input or the model, or if the input has changed.
    ModelFnError
        If a prediction has not one row for each row of the input.

    Notes
    -----
    May be repeated, also by several workers at once: the file appears whole, with the same content.
    """
    telemetry_off()
    leave_quickly()
    dataset = same_input(source, model.schema, digest)
    batches = []
    with one_thread():
        for start in range(part.start, part.stop, BATCH_ROWS):
            stop = min(start + BATCH_ROWS, part.stop)
            predictions = _predicted(model, rows_for_model(dataset, model.schema, start, stop))
            batches.append(_checked(predictions, stop - start))
    columns = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    PredictionFolder(output).put(part, to_csv(columns, key_columns(dataset, model.schema, part.start, part.stop)))
    return part.stop - part.start


def _predicted(model: ModelInfo, rows: Any) -> Mapping[str, NDArray[Any]]:
    """Call the model; its errors are of classes that only the process knows which has loaded it."""
    try:
        predictions: Mapping[str, NDArray[Any]] = _loaded(model).predict(None, rows)
        return predictions
    except Exception as error:
        if not type(error).__module__.startswith("_psflow_export_"):
            raise
        reason = f"the model raised {type(error).__name__}: {error}"
    raise ModelFnError((reason,))  # out here it has no context, which would travel with it


@functools.lru_cache(maxsize=1)
def _loaded(model: ModelInfo) -> Any:
    return load_model(model)


def _checked(predictions: Mapping[str, NDArray[Any]], num_rows: int) -> Mapping[str, NDArray[Any]]:
    shapes = {name: list(array.shape) for name, array in predictions.items()}
    if not shapes or any(shape[:1] != [num_rows] for shape in shapes.values()):
        raise ModelFnError((f"for {num_rows} rows model_fn predicted {shapes}: expected arrays with one row for each",))
    return predictions
