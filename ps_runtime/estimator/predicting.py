"""The predictions of a checkpoint for each batch of an input, computed in this process or by a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.enforcement import Enforcement, unused_sentence
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.predictions import Predictions, choose
from psflow.ps_runtime.estimator.zero_row import check_keys_early
from psflow.ps_runtime.model.caller import ModelCaller
from psflow.ps_runtime.model.evaluation import Batch, predict_batches, read_values
from psflow.ps_runtime.model.hooks import SessionRunHook
from psflow.ps_runtime.model.mode_reads import ModeReads
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.model.values import ModelValues
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    from psflow.ps_runtime.cluster.ordered_results import Client

__all__ = ["opened_input", "predicted_batches"]

logger = logging.getLogger(__name__)


def predicted_batches(
    caller: ModelCaller,
    input_fn: Callable[..., Any],
    store: CheckpointStore,
    step: int,
    keys: Sequence[str],
    hooks: Sequence[SessionRunHook],
    client: Client | None,
) -> Generator[tuple[Predictions, int], None, None]:
    """Yield the chosen predictions for each batch of an input and its rows, in order; see `Estimator.predict`."""
    if client is not None:
        if hooks:
            raise UsageError(
                (
                    "hooks run in one process, around all batches, and a cluster predicts batches side by side: leave "
                    "out hooks, or client",
                )
            )
        from psflow.ps_runtime.estimator.distributed_prediction import distributed_predictions  # loads Dask

        with CheckpointReader.pinned(store, step, "estimator") as reader:
            schema = reader.manifest.model.schema
            assert schema is not None, "the plan of its training has set it"
            check_keys_early(caller, schema, keys)
            opened = opened_input(caller.reading(schema), input_fn, schema, ModeKeys.PREDICT, None)
            yield from distributed_predictions(client, caller, opened, store, reader.manifest, keys)
        return
    with CheckpointReader.pinned(store, step, "estimator") as reader:
        values, schema = read_values(reader), reader.manifest.model.schema
    caller = caller.reading(schema)
    opened = opened_input(caller, input_fn, schema, ModeKeys.PREDICT, values)
    for predictions, rows in predict_batches(caller, opened, values, step, hooks):
        yield choose(predictions, keys), rows


def opened_input(
    caller: ModelCaller,
    input_fn: Callable[..., Any],
    schema: InputSchema | None,
    mode: ModeKeys,
    values: ModelValues | None,
    non_finite: NonFinite = "keep",
) -> SplittableInput | Iterator[Batch]:
    """Return what an input_fn reads in EVAL or PREDICT, as a model that was trained on `schema` reads it."""
    evaluates = mode == ModeKeys.EVAL
    enforcement = Enforcement(
        schema,
        f"the {'eval' if evaluates else 'predict'} input",
        needs_labels=evaluates,
        on_unused=lambda names: logger.warning("%s", unused_sentence("the input", names)),
        reads=ModeReads(caller, (mode,), values),
    )
    return open_input(
        input_fn,
        mode=mode,
        params=caller.params,
        config=caller.config,
        non_finite=non_finite,
        enforcement=enforcement,
    )
