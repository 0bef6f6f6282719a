"""Pipeline flow: runs train, evaluate, export and predict as subflows."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State

from psflow.flows.evaluate import evaluate_flow
from psflow.flows.export import export_flow
from psflow.flows.invocation import invoke, invoked
from psflow.flows.parameters.configuration import PipelineParameters
from psflow.flows.parameters.stages import PredictParameters, Stage
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.planning.restart import plan_start, with_model_dir
from psflow.flows.planning.training_plan import planned_training
from psflow.flows.predict import found_input, predict_flow
from psflow.flows.prefect_runs import public_flow
from psflow.flows.replay.export_plan import check_after_training, check_without_training
from psflow.flows.stopping.interrupts import INTERRUPTIONS, Interrupts
from psflow.flows.train import train_flow
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.config.files import Settings
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.attempt import COMPLETED_STEP
from psflow.ps_runtime.specs.run_config import absolute
from psflow.ps_runtime.specs.schema import InputSchema
from psflow.tasks.exports.exported import best_record
from psflow.tasks.prediction.inputs import open_rows

ELSEWHERE = ("cluster.", "transport", "code_dir", "train.max_steps")
"""Keys whose change does not reopen a finished training."""

Facts = dict[str, Any]


def pipeline(parameters: PipelineParameters, settings: Settings | None = None) -> Facts:
    """Run the pipeline flow in this process, with a local Prefect server if none is named.

    Returns
    -------
    dict
        The answer of each stage, and ``wall_secs``.

    Raises
    ------
    UsageError
        If the request of a stage is invalid, as far as that can be checked; nothing was started then.
    SystemExit
        With 128 + the number of the signal, if one ended it.
    """
    return invoke(pipeline_flow, parameters, partial(_prepared, settings=settings))


@contextmanager
def _prepared(parameters: PipelineParameters, settings: Settings | None = None) -> Iterator[PipelineParameters]:
    """Give the parameters of this run; check everything that stages need and no stage creates."""
    parameters = parameters.model_copy(update={"model_dir": absolute(with_model_dir(parameters).model_dir)})
    stages = parameters.pipeline
    schema: InputSchema | None = None
    if "train" in stages.chosen:
        with planned_training(parameters.training(), settings) as planned:
            schema = planned.attempt.schema_to_predict() if stages.predict.input is not None else None
            check_after_training(parameters, planned.start.parameters, planned.attempt.plan.model)
    else:
        check_without_training(parameters)
    check_prediction_input(parameters, schema)
    if "predict" in stages.chosen and "train" not in stages.chosen and "export" not in stages.chosen:
        _model(parameters, {})
    yield parameters


def check_prediction_input(parameters: PipelineParameters, schema: InputSchema | None) -> None:
    """Check the input of the stage predict, if that will run; UsageError if it is missing.

    With the `schema` of the model, the input is read and compared with it.
    """
    if parameters.pipeline.predict.input is not None and "predict" in parameters.pipeline.chosen:
        source = found_input(_prediction(parameters, "not exported yet", parameters.directory))
        if schema is not None:
            open_rows(source, schema)


@public_flow(name="pipeline", flow_run_name="pipeline {parameters.experiment}")
def pipeline_flow(parameters: PipelineParameters) -> Facts | State[Any]:
    """Train, evaluate, export and predict, one after the other; finished work of earlier runs is not repeated.

    Parameters
    ----------
    parameters : PipelineParameters
        The training, and the stages to run.

    Returns
    -------
    dict
        As `pipeline` does; a Cancelled state if a signal or a cancellation ended it.
    """
    with invoked(parameters, _prepared) as invocation, Interrupts() as interrupts:
        facts: Facts = {}
        try:
            for stage in invocation.prepared.pipeline.chosen:
                interrupts.check()
                get_run_logger().info("stage %s", stage)
                facts[stage] = STAGES[stage](invocation.prepared, facts, interrupts)
        except INTERRUPTIONS as interrupted:
            return invocation.cancelled(interrupted, "run the same command again to continue where it ended")
        return facts | {"wall_secs": round(time.monotonic() - invocation.started, 3)}


def _train(parameters: PipelineParameters, facts: Facts, interrupts: Interrupts) -> Facts:
    training = parameters.training()
    step = _completed_step(training)
    if step is not None:
        model_dir = parameters.directory
        get_run_logger().info("%s is already trained to step %s", model_dir, step)
        return {"model_dir": model_dir, "final_step": step, "was_done": True}
    return _result(train_flow, training, interrupts)


def _evaluate(parameters: PipelineParameters, facts: Facts, interrupts: Interrupts) -> Facts:
    return _result(evaluate_flow, parameters.evaluation(), interrupts)


def _export(parameters: PipelineParameters, facts: Facts, interrupts: Interrupts) -> Facts:
    return _result(export_flow, parameters.export(), interrupts)


def _predict(parameters: PipelineParameters, facts: Facts, interrupts: Interrupts) -> Facts:
    model, step = _model(parameters, facts)
    name = "batches" if parameters.pipeline.predict.new_files_only else f"step_{step:08d}"
    folder = os.path.join(parameters.directory, "predictions", name)
    return _result(predict_flow, _prediction(parameters, model, folder), interrupts)


def _prediction(parameters: PipelineParameters, model: str, folder: str) -> PredictParameters:
    """Return the parameters of the stage predict; `folder` is the default output."""
    stage = parameters.pipeline.predict
    settings = stage.model_dump(mode="json") | {
        "model": model,
        "input": stage.input or "",
        "output": stage.output or folder,
    }
    there = {"code_dir": parameters.code_dir, "cluster": {"address": parameters.cluster.address}}
    return PredictParameters.model_validate(settings | there)


def _model(parameters: PipelineParameters, facts: Facts) -> tuple[str, int]:
    """Return the model to predict with, and its step: the export of this run, else the best one in model_dir."""
    if "export" in facts:
        return str(facts["export"]["model_uri"]), int(facts["export"]["step"])
    best = best_record(parameters.directory)
    if best is None:
        raise UsageError((f"{parameters.directory} has no exported model to predict with; train or export first",))
    return best.path, best.step


STAGES: dict[Stage, Callable[[PipelineParameters, Facts, Interrupts], Facts]] = {
    "train": _train,
    "evaluate": _evaluate,
    "export": _export,
    "predict": _predict,
}


def _result(stage: Callable[..., Any], parameters: Any, interrupts: Interrupts) -> Facts:
    """Run the flow of a stage; raise its failure, or InterruptedRunError."""
    try:
        result: Facts = stage(parameters)  # not its state, which lacks data if a slow server sends it twice
    except Exception:
        interrupts.check()
        raise
    return result


def _completed_step(training: TrainParameters) -> int | None:
    """Return the final step of an earlier start, if that meets the current request; else None."""
    start = plan_start(training)
    record = JobFile(start.parameters.model_dir).read()
    step: int | None = None if record is None else record.facts.get(COMPLETED_STEP)
    max_steps = training.train.max_steps
    if step is None or (max_steps is not None and step < max_steps):
        return None
    is_new = any(not change.key.startswith(ELSEWHERE) for change in start.changes)
    return None if is_new else step
