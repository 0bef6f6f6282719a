"""Predictions by the workers of a Dask cluster, in input order."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.ordered_results import Client, ordered_results
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.estimator.prediction.predictions import Predictions
from psflow.ps_runtime.estimator.prediction.task import PredictionJob, SharedJob, partitions_of, predict_partition
from psflow.ps_runtime.model.calls.caller import ModelCaller
from psflow.ps_runtime.model.evaluation import Batch


def distributed_predictions(
    client: Client,
    caller: ModelCaller,
    opened: SplittableInput | Iterator[Batch],
    store: CheckpointStore,
    manifest: Manifest,
    keys: Sequence[str],
) -> Generator[tuple[Predictions, int], None, None]:
    """Yield the chosen predictions and the number of rows of each batch of an input, in order, computed by workers.

    Workers read tabular files themselves; any other input is read here, and its batches are sent to them.

    Raises Exception as in `ordered_results` and `predict_partition`, after the predictions before it were yielded.

    Notes
    -----
    Closing the iterator cancels the tasks under way.
    """
    job = PredictionJob(
        model_fn=caller.model_fn,
        params=caller.params,
        config=caller.config,
        model_dir=store.files.url,
        host=socket.gethostname(),
        step=manifest.step,
        saved_at=manifest.saved_at,
        schema=manifest.model.schema,
        keys=tuple(keys),
        records=(opened.scanned, opened.batching) if isinstance(opened, RecordDataset) else None,
    )
    results = ordered_results(client, predict_partition, SharedJob(job), partitions_of(opened))
    with closing(results):
        for batches in results:
            yield from batches
