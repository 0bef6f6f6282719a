"""Predicts blocks of records, and finds the record on which a model fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.errors import ModelFnError
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.tasks.prediction.rows import Block, OnFault, PredictionRows, RecordFault

BATCH_BYTES = 4 * 1024**2
"""Bytes of the features of a batch: small enough for processor caches."""
MAX_BATCH_ROWS = 8192
NOT_OF_A_RECORD = (MemoryError, ImportError)
"""Errors that no record causes."""

Predictions = Mapping[str, NDArray[Any]]


def batch_rows(schema: InputSchema) -> int:
    """Return the batch size, which depends only on the model, so that results are reproducible."""
    row_bytes = sum(np.dtype(spec.dtype).itemsize * int(np.prod(spec.shape)) for spec in schema.features)
    return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // max(1, row_bytes)))


def predicted_batches(
    model: Any, rows: PredictionRows, block: Block, size: int, on_fault: OnFault | None
) -> Iterator[tuple[Block, Predictions]]:
    """Yield the records of a block, in order, with their predictions.

    Raises ModelFnError if the model fails on a record, or predicts NaN for it; the error names the record.
    """
    for start in range(0, len(block), size):
        yield from _predicted(model, rows, block[start : start + size], on_fault)


def _predicted(
    model: Any, rows: PredictionRows, block: Block, on_fault: OnFault | None
) -> Iterator[tuple[Block, Predictions]]:
    """Predict a block; a failing block is halved down to single records."""
    try:
        predictions = model.predict(None, block.rows)
    except NOT_OF_A_RECORD:
        raise
    except Exception as error:  # its class may exist only in this process
        reason = f"the model raised {type(error).__name__}: {error}"
    else:
        yield from _without_nan(rows, block, predictions, on_fault)
        return
    if len(block) > 1:
        middle = len(block) // 2
        yield from _predicted(model, rows, block[:middle], on_fault)
        yield from _predicted(model, rows, block[middle:], on_fault)
        return
    record = int(block.records[0])
    if on_fault is None:
        raise ModelFnError((f"{rows.located(record)}: {reason}",))  # without a context, which would be pickled, too
    on_fault(RecordFault(record, reason, cells_of(block)))


def _without_nan(
    rows: PredictionRows, block: Block, predictions: Predictions, on_fault: OnFault | None
) -> Iterator[tuple[Block, Predictions]]:
    """Yield the records of a block without NaN predictions: the class of such logits would be arbitrary.

    Infinity may be correct, such as the logarithm of a probability of 0.
    """
    nan = _nan_rows(predictions, len(block))
    if not nan:
        yield block, predictions
        return
    faulty = np.logical_or.reduce(list(nan.values()))
    for row in np.flatnonzero(faulty).tolist():
        one = block[row : row + 1]
        record = int(one.records[0])
        reason = f"the model predicted NaN as {', '.join(repr(name) for name, which in nan.items() if which[row])}"
        if on_fault is None:
            cells = [name for name, which in rows.not_finite(one).items() if which.any()]
            where = f" from a missing, NaN or infinite cell in {', '.join(cells)}" if cells else ""
            advice = "correct the row, or set on_error to reject"
            raise ModelFnError((f"{rows.located(record)}: {reason}{where}; {advice}",))
        on_fault(RecordFault(record, reason, cells_of(one)))
    if not faulty.all():
        kept = {
            name: array[~faulty] if array.shape[:1] == (len(block),) else array for name, array in predictions.items()
        }
        yield block.without(faulty), kept


def _nan_rows(predictions: Predictions, num_rows: int) -> dict[str, NDArray[np.bool_]]:
    """Return the rows with NaN, for each prediction that has some."""
    found: dict[str, NDArray[np.bool_]] = {}
    for name, array in predictions.items():
        is_of_rows = array.dtype.kind in "fc" and array.shape[:1] == (num_rows,)
        if is_of_rows and np.isnan(np.vdot(array, array)):  # a sum of squares: NaN if and only if one of them is
            found[name] = np.asarray(np.isnan(array).reshape(num_rows, -1).any(axis=1))
    return found


def cells_of(block: Block) -> Any:
    """Return the values of a block of one record as plain data."""
    keys = block.keys.to_pylist()[0] if block.keys.num_columns else {}
    if hasattr(block.rows, "column_names"):
        return keys | block.rows.to_pylist()[0]
    if isinstance(block.rows, dict):
        return {name: array[0].tolist() for name, array in block.rows.items()}
    return block.rows[0].tolist()
