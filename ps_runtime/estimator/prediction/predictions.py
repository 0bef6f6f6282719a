"""Predictions of a checkpoint for each batch of an input, computed in this process or by a Dask cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np
from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.arrays import zeros_of
from psflow.ps_runtime.data.enforcement import Enforcement, unused_sentence
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.non_finite import NonFinite
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import InputError, ModelFnError, UsageError, did_you_mean
from psflow.ps_runtime.estimator.event_log import print_unless_configured
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.calls.mode_reads import ModeReads
from psflow.ps_runtime.model.calls.values import ModelValues
from psflow.ps_runtime.model.evaluation import Batch, batches_of, predict_batches, read_values
from psflow.ps_runtime.model.hooks.base import SessionRunHook
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.specs.cluster_task import ClusterTask, TaskType
from psflow.ps_runtime.specs.schema import InputSchema

if TYPE_CHECKING:
    from psflow.ps_runtime.cluster.ordered_results import Client

Predictions = NDArray[Any] | dict[str, NDArray[Any]]
"""The predictions of a batch: one array, or arrays by name."""


def choose(predictions: Any, keys: Sequence[str]) -> Predictions:
    """Return the predictions of a batch with the names `keys`, or all of them without keys.

    Raises UsageError as in `check_keys`.
    """
    check_keys(predictions, keys)
    if not isinstance(predictions, Mapping):
        return np.asarray(predictions)
    return {key: np.asarray(predictions[key]) for key in keys or predictions}


def check_keys(predictions: Any, keys: Sequence[str]) -> None:
    """Raise UsageError if a key is not among the predictions of an EstimatorSpec, or if they have no names."""
    if not keys:
        return
    if not isinstance(predictions, Mapping):
        raise UsageError(("predict_keys: model_fn predicts one array, which has no key; leave predict_keys out",))
    faults = tuple(
        f"there is no prediction {key!r}{did_you_mean(key, predictions)}" for key in keys if key not in predictions
    )
    if faults:
        raise UsageError(faults)


def examples_of(predictions: Predictions, num_rows: int, model: str) -> Iterator[Any]:
    """Yield the predictions for each example of a batch.

    Raises ModelFnError if there are no predictions, or one of them does not have one row for each example.
    """
    named = predictions if isinstance(predictions, dict) else {"predictions": predictions}
    if not named or any(value.shape[:1] != (num_rows,) for value in named.values()):
        shapes = ", ".join(f"{key!r} of shape {list(value.shape)}" for key, value in named.items()) or "nothing"
        raise ModelFnError(
            (
                f"{model} predicts {shapes} for {num_rows} examples: expected one row of each prediction for each "
                "example; correct it, or call predict with yield_single_examples=False",
            )
        )
    if isinstance(predictions, dict):
        yield from ({key: value[row] for key, value in predictions.items()} for row in range(num_rows))
    else:
        yield from predictions


def results_of(
    batches: Generator[tuple[Predictions, int], None, None], model: str, *, single_examples: bool
) -> Iterator[Any]:
    """Yield the predictions of batches one by one, or split into examples as `examples_of` does."""
    with closing(batches):
        for chosen, num_rows in batches:
            if single_examples:
                yield from examples_of(chosen, num_rows, model)
            else:
                yield chosen


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchShare:
    """The batches of an input that one process predicts: `index`, ``index + num_processes`` and so on, from 0."""

    index: int = 0
    num_processes: int = 1


def share_of(task: ClusterTask | None, client: Client | None) -> BatchShare | None:
    """Return what this process predicts, as one of a cluster whose chief and workers share the input; None: nothing.

    Logs the share. Raises UsageError if a client is given in a process of a cluster, or the process is a client of it.
    """
    print_unless_configured()
    if task is None:
        return BatchShare()
    remedy = "to predict everything in this process, give a RunConfig with cluster=None"
    who = f"{task.task_type} {task.task_id}"
    if client is not None:
        what = f"this process is {who} of a cluster, whose chief and workers share the input, and a client is given"
        raise UsageError((f"predict: {what}; leave out the client, or give a RunConfig with cluster=None",))
    match task.task_type:
        case TaskType.CHIEF | TaskType.MASTER:
            index = 0
        case TaskType.WORKER:
            index = 1 + task.task_id
        case TaskType.PS | TaskType.EVALUATOR:
            logger.warning("%s predicts nothing: the chief and the workers share the input; %s", who, remedy)
            return None
        case TaskType.CLIENT:
            raise UsageError((f"predict: this process is {who} of a cluster, and has no share of the input; {remedy}",))
        case _:
            assert_never(task.task_type)
    share = BatchShare(index, 1 + len(task.cluster.workers))
    if share.num_processes > 1:
        logger.warning(
            "%s predicts batches %d, %d, %d, ... of the input, counted from 0, as one of %d processes that share them; "
            "psflow cannot check that input_fn yields the same batches in each process; %s",
            who,
            *(index + round_ * share.num_processes for round_ in range(3)),
            share.num_processes,
            remedy,
        )
    return share


def schema_to_predict(caller: ModelCaller, schema: InputSchema) -> InputSchema | None:
    """Return the input schema with which a model trained on `schema` predicts; None if only later calls show it."""
    try:
        return ModeReads(caller.reading(schema), (ModeKeys.PREDICT,))(
            zeros_of(schema.whole.features), None, schema.for_prediction(), "the predict input"
        )
    except InputError as error:  # of a feature that the training input does not have
        logger.debug("the schema of the prediction input is not known yet: %s", error)
        return None


def check_keys_early(caller: ModelCaller, schema: InputSchema, keys: Sequence[str]) -> None:
    """Refuse unknown prediction keys before a cluster predicts, if model_fn accepts a row of zeros.

    Raises UsageError if a key is unknown, or the predictions have no names.
    """
    if not keys:
        return
    try:
        with np.errstate(all="ignore"):
            zeros = zeros_of(schema.whole.features)
            predictions = caller.reading(schema).build(zeros, None, ModeKeys.PREDICT, seed=0).spec.predictions
    except Exception as error:  # the model may reject zeros; then workers check the keys
        logger.debug("workers check predict_keys, as model_fn rejects a row of zeros: %r", error)
        return
    check_keys(predictions, keys)


def predicted_batches(
    caller: ModelCaller,
    input_fn: Callable[..., Any],
    store: CheckpointStore,
    step: int,
    keys: Sequence[str],
    hooks: Sequence[SessionRunHook],
    client: Client | None,
    share: BatchShare,
) -> Generator[tuple[Predictions, int], None, None]:
    """Yield the chosen predictions for each batch of a share and its rows, in order; see `Estimator.predict`."""
    if client is not None:
        if hooks:
            raise UsageError(
                (
                    "hooks run in one process, around all batches, but a cluster predicts batches in parallel: leave "
                    "out hooks, or client",
                )
            )
        from psflow.ps_runtime.estimator.prediction.distributed import distributed_predictions  # loads Dask

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
    batches = batches_of(opened, share.index, share.num_processes)
    for predictions, rows in predict_batches(caller, batches, values, step, hooks):
        yield choose(predictions, keys), rows


def opened_input(
    caller: ModelCaller,
    input_fn: Callable[..., Any],
    schema: InputSchema | None,
    mode: ModeKeys,
    values: ModelValues | None,
    non_finite: NonFinite = "keep",
) -> SplittableInput | Iterator[Batch]:
    """Open the input of an input_fn for EVAL or PREDICT, as a model that was trained on `schema` reads it."""
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
