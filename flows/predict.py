"""Prediction flow: predicts every row of a file in partitions, on a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from psflow.flows.invocation import invoke, invoked
from psflow.flows.parameters.input import format_named
from psflow.flows.parameters.stages import PredictParameters
from psflow.flows.parameters.user_modules import look_in
from psflow.flows.prefect_runs import public_flow
from psflow.flows.reporting.artifacts import Artifacts
from psflow.flows.stopping.interrupts import INTERRUPTIONS, Interrupts
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.data.enforcement import unused_sentence
from psflow.tasks.prediction.batches import planned_batches
from psflow.tasks.prediction.folder import PredictionFolder
from psflow.tasks.prediction.inputs import PredictionInput, input_shown, prediction_input
from psflow.tasks.prediction.model import ModelInfo, found_model
from psflow.tasks.prediction.options import PredictionOptions
from psflow.tasks.prediction.output_claim import OutputClaim
from psflow.tasks.prediction.part_facts import PartFacts, all_invalid, all_not_finite
from psflow.tasks.prediction.partitions import Partition
from psflow.tasks.prediction.plan import PredictionPlan, plan_prediction
from psflow.tasks.prediction.report import report
from psflow.tasks.prediction.task import predict_partitions
from psflow.tasks.prediction.window import Partitions


def predict(parameters: PredictParameters) -> dict[str, Any]:
    """Run the prediction flow in this process, with a local Prefect server if none is named.

    Returns
    -------
    dict
        ``rows, rejects, non_finite, invalid, parts, output, folders, model_uri, model_version, global_step`` and
        ``wall_secs``. ``non_finite`` has the number of predicted ``rows`` with a missing, NaN or infinite cell, and the
        ``columns`` that have one; ``invalid`` has the same for cells that were read as missing. ``folders`` are those
        that this run has completed; with ``new_files_only`` none if there are no new files.

    Raises
    ------
    UsageError
        If the model, the input or the output is unusable, or another prediction writes to the output; nothing was
        predicted then.
    SystemExit
        With 128 + the number of the signal, if one ended it.
    """
    return invoke(predict_flow, parameters, claimed)


@dataclass(frozen=True)
class Prepared:
    """A prepared prediction."""

    model: ModelInfo
    plans: Sequence[PredictionPlan]
    output: str


@contextmanager
def claimed(parameters: PredictParameters) -> Iterator[tuple[Prepared, OutputClaim]]:
    """Like `prepared`, and claim the output: of two concurrent starts, one is refused before its flow begins.

    Raises UsageError as `prepared` does; and if another prediction has claimed the output meanwhile, with its owner.
    """
    with prepared(parameters) as found, PredictionFolder(found.output).claim() as claim:
        yield found, claim


@contextmanager
def prepared(parameters: PredictParameters) -> Iterator[Prepared]:
    """Find the model, count the records of the input, check the output; changes nothing.

    Raises UsageError if any of these is invalid.
    """
    source, output = found_input(parameters), _absolute(parameters.output)  # checked before a model is downloaded
    options = PredictionOptions(
        parameters.output_format, parameters.predict_keys, parameters.on_error, parameters.escape_formulas
    )
    PredictionFolder(output).claim().check_free()
    with found_model(parameters.model) as model:
        if parameters.new_files_only:
            with planned_batches(model, source, options, output) as plans:
                yield Prepared(model, plans, output)
        else:
            yield Prepared(model, [plan_prediction(model, source, options, output)], output)


def dry_run(parameters: PredictParameters) -> dict[str, Any]:
    """Return the plan of a prediction; computes and writes nothing.

    Returns
    -------
    dict
        ``predictions``, a list with ``output, files, rows, bytes, parts, finished_parts, columns, unused`` for each.

    Raises
    ------
    UsageError
        As in `predict`.
    """
    with prepared(parameters) as found:
        return {"predictions": [plan.facts() for plan in found.plans]}


def _flow_run_name() -> str:
    return f"predict {input_shown(flow_run.parameters['parameters'].input)}"


@public_flow(name="predict", flow_run_name=_flow_run_name)
def predict_flow(parameters: PredictParameters) -> dict[str, Any] | State[Any]:
    """Predict every row of a file, in partitions, in the order of the file.

    Parameters
    ----------
    parameters : PredictParameters
        The model, its input, and the output for the predictions.

    Returns
    -------
    dict
        As `predict` does; a Cancelled state if a signal ended it.
    """
    with invoked(parameters, claimed) as invocation, Interrupts() as interrupts:
        try:
            facts = _run(*invocation.prepared, parameters, interrupts)
        except INTERRUPTIONS as interrupted:
            return invocation.cancelled(interrupted, "run the same command again to continue where it ended")
        return facts | {"wall_secs": round(time.monotonic() - invocation.started, 3)}


def _run(found: Prepared, claim: OutputClaim, parameters: PredictParameters, interrupts: Interrupts) -> dict[str, Any]:
    if not found.plans:
        get_run_logger().info("no new files since the last run")
    parts: list[PartFacts] = []
    for plan in found.plans:
        parts += _complete(plan, parameters, interrupts, claim)
    return _answered(found, parts)


def _complete(
    plan: PredictionPlan, parameters: PredictParameters, interrupts: Interrupts, claim: OutputClaim
) -> list[PartFacts]:
    """Predict the missing parts of a folder; return the facts of all its parts."""
    logger = get_run_logger()
    if plan.rows.unused:
        logger.warning("%s", unused_sentence(str(plan.source), plan.rows.unused))
    plan.begin()
    left = plan.left()
    if len(left) < len(plan.parts):
        logger.info("%s of %s partitions already exist", len(plan.parts) - len(left), len(plan.parts))
    began = time.monotonic()
    if left:
        plan.folder.reopen()
        _predict(plan, left, parameters, interrupts, claim)
    claim.check()
    parts = plan.complete()
    if left:
        with closing(Artifacts("predictions")) as artifacts:
            page = report(plan, parts, sum(part.num_records for part in left), time.monotonic() - began)
            artifacts.text("report", page, f"Predictions in {plan.folder.shown}.")
    return parts


def _predict(
    plan: PredictionPlan,
    left: Sequence[Partition],
    parameters: PredictParameters,
    interrupts: Interrupts,
    claim: OutputClaim,
) -> None:
    """Predict the remaining partitions; InterruptedRunError if a signal came before the end."""
    cluster = parameters.cluster

    def is_stopped() -> bool:
        return interrupts.received is not None or claim.is_lost

    with open_cluster(cluster.address, cluster.workers, warn=get_run_logger().warning) as client:
        try:
            done = predict_partitions(client, Partitions(plan.work, left), is_stopped)
        except Exception:
            interrupts.check()
            raise
    if isinstance(done, State):  # stopped before the end
        interrupts.check()


def _answered(found: Prepared, parts: Sequence[PartFacts]) -> dict[str, Any]:
    """Return the facts of a complete prediction; warn of rejects and of cells that are not finite or invalid."""
    logger = get_run_logger()
    non_finite, invalid, rejects = all_not_finite(parts), all_invalid(parts), sum(part.rejects for part in parts)
    for kind, counted in (("missing, NaN or infinite", non_finite), ("invalid, read as missing", invalid)):
        for column, cells_of in counted["columns"].items():
            where = f"the first in row {cells_of['first_row']} of {cells_of['file']} ({found.plans[0].rows.row_note})"
            cells = f"{cells_of['cells']:,} cell{'' if cells_of['cells'] == 1 else 's'}"
            logger.warning("%s: %s %s, %s", column, cells, kind, where)
    if rejects:
        folders = ", ".join(plan.folder.shown for plan in found.plans)
        logger.warning("%s rows could not be read or predicted: see _rejects in %s", f"{rejects:,}", folders)
    return {
        "rows": sum(part.rows for part in parts),
        "rejects": rejects,
        "non_finite": non_finite,
        "invalid": invalid,
        "parts": len(parts),
        "output": found.output,
        "folders": [plan.folder.url for plan in found.plans],
        "model_uri": found.model.uri,
        "model_version": found.model.version,
        "global_step": found.model.global_step,
    }


def found_input(parameters: PredictParameters) -> PredictionInput:
    """Find the input without reading it completely.

    Raises UsageError if there is no such input, or no such format.
    """
    look_in(parameters.code_dir)
    if parameters.format is None:
        return prediction_input(parameters.input, None, parameters.non_finite, parameters.invalid)
    kind = format_named(parameters.format)
    return prediction_input(parameters.input, kind, parameters.non_finite, parameters.invalid)


def _absolute(path: str) -> str:
    """Return a local path that workers can use from any working directory."""
    return path if "://" in path else os.path.abspath(path)
