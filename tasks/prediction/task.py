"""Prefect task that predicts all partitions on a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Client
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled

from psflow.tasks.prediction.progress import PredictionProgress
from psflow.tasks.prediction.window import Partitions, predicted_parts


@task(name="predict partitions", cache_policy=NO_CACHE, persist_result=False)
def predict_partitions(
    client: Client, partitions: Partitions, is_stopped: Callable[[], bool]
) -> tuple[int, int] | State[Any]:
    """Predict partitions on the cluster; return rows and rejects, or a Cancelled state if interrupted.

    Raises Exception as `predicted_parts` does.
    """
    progress = PredictionProgress(partitions.left)
    for facts in predicted_parts(client, partitions):
        progress.add(facts)
        if not progress.is_done and is_stopped():
            return Cancelled(message="interrupted; run the same command again to do the rest")
        progress.report()
    return progress.rows, progress.rejects
