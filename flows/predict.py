"""The prediction flow: every row of a file through a model, in partitions, on a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from psflow.flows.parameters.input import format_named
from psflow.flows.parameters.predict import PredictParameters
from psflow.flows.parameters.user_code import look_in, take_along
from psflow.flows.prefect_runs.public_flow import public_flow
from psflow.flows.starting.invocation import invoke, invoked
from psflow.flows.stopping.interrupts import INTERRUPTIONS, Interrupts
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.data.enforcement import unused_sentence
from psflow.tasks.prediction.inputs import PredictionInput, input_shown, prediction_input, read_input
from psflow.tasks.prediction.model import found_model
from psflow.tasks.prediction.output import PredictionFolder, partitions
from psflow.tasks.prediction.task import PredictionJob, predict_partitions

__all__ = ["found_input", "predict", "predict_flow"]


def predict(parameters: PredictParameters) -> dict[str, Any]:
    """Run the prediction flow in this process, with a local Prefect server if none is named.

    Returns
    -------
    dict
        ``rows, non_finite, parts, output, model_uri, model_version, global_step, wall_secs``; ``non_finite`` has the
        number of ``rows`` with a blank, NaN or infinite cell, and the ``columns`` that have one.

    Raises
    ------
    UsageError
        If the model, the input or the output cannot be used; nothing was predicted then.
    SystemExit
        With 128 + the number of the signal, if one ended it.
    """
    return invoke(predict_flow, parameters, prepared)


@contextmanager
def prepared(parameters: PredictParameters) -> Iterator[PredictionJob]:
    """Find the model, read the input, look at the output; change nothing.

    Raises
    ------
    UsageError
        Whatever is wrong with any of these.
    """
    source, output = found_input(parameters), _absolute(parameters.output)  # before a model is downloaded for nothing
    with found_model(parameters.model) as model:
        unused: list[str] = []
        dataset = read_input(source, model.schema, unused.extend)
        found = dataset.non_finite, tuple(unused)
        job = PredictionJob(model, source, dataset.digest(), dataset.num_records, output, *found)
        PredictionFolder(output).check(_identity(job))
        yield job


def _flow_run_name() -> str:
    return f"predict {input_shown(flow_run.parameters['parameters'].input)}"


@public_flow(name="predict", flow_run_name=_flow_run_name)
def predict_flow(parameters: PredictParameters) -> dict[str, Any] | State[Any]:
    """Predict every row of a file, in partitions, in the order of the file.

    Parameters
    ----------
    parameters : PredictParameters
        The model, its input, and where the predictions go.

    Returns
    -------
    dict
        As `predict` does; a Cancelled state if a signal ended it.
    """
    with invoked(parameters, prepared) as invocation, Interrupts() as interrupts:
        try:
            facts = _run(invocation.prepared, parameters, interrupts)
        except INTERRUPTIONS as interrupted:
            return invocation.cancelled(interrupted, "run the same command again to continue where it ended")
        return facts | {"wall_secs": round(time.monotonic() - invocation.started, 3)}


def _run(job: PredictionJob, parameters: PredictParameters, interrupts: Interrupts) -> dict[str, Any]:
    if job.unused:
        get_run_logger().warning("%s", unused_sentence(str(job.input), job.unused))
    folder, parts = PredictionFolder(job.output), partitions(job.num_rows)
    for line in job.non_finite.lines():
        get_run_logger().warning("%s", line)
    folder.claim(_identity(job))
    finished = folder.finished(parts)
    if finished:
        get_run_logger().info("%s of %s partitions already exist", len(finished), len(parts))
    left = [part for part in parts if part not in finished]
    if left:
        cluster = parameters.cluster
        with open_cluster(cluster.address, cluster.workers, warn=get_run_logger().warning) as client:
            try:
                predicted = predict_partitions(client, job, left, lambda: interrupts.received is not None)
            except Exception:
                interrupts.check()
                raise
        if isinstance(predicted, State):  # it was stopped before it was complete
            interrupts.check()
    return {
        "rows": folder.verify(parts),
        "non_finite": job.non_finite.facts(),
        "parts": len(parts),
        "output": job.output,
        "model_uri": job.model.uri,
        "model_version": job.model.version,
        "global_step": job.model.global_step,
    }


def _identity(job: PredictionJob) -> dict[str, Any]:
    """Return what makes the predictions in a folder those of `job`."""
    facts = {"model": job.model.uuid, "input": job.digest, "rows": job.num_rows}
    return facts | {"non_finite_rows": job.non_finite.num_rows}


def found_input(parameters: PredictParameters) -> PredictionInput:
    """Find the input, without reading all of it; a format of the user travels to a cluster of others.

    Raises
    ------
    UsageError
        If there is no such input, or no such format.
    """
    look_in(parameters.code_dir)
    if parameters.format is None:
        return prediction_input(parameters.input, non_finite=parameters.non_finite)
    kind = format_named(parameters.format)
    if parameters.cluster.address is not None and ":" in parameters.format:
        take_along([parameters.format])
    return prediction_input(parameters.input, kind, parameters.non_finite)


def _absolute(path: str) -> str:
    """Return a local path as workers can use it, whatever their working directory is."""
    return path if "://" in path else os.path.abspath(path)
