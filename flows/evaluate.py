"""Evaluation flow: evaluates old checkpoints on any data, in parallel on a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from psflow.flows.invocation import invoke, invoked
from psflow.flows.parameters.stages import EvaluateParameters
from psflow.flows.prefect_runs import TaskRuns, public_flow
from psflow.flows.replay.plan import ReplayPlan, ReplayResults, plan_replay
from psflow.flows.reporting.artifacts import Artifacts
from psflow.flows.reporting.recording import closed_on_error
from psflow.flows.stopping.interrupts import INTERRUPTIONS, Interrupts
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.errors import CheckpointError
from psflow.tasks.evaluation.replay import Replay, evaluate_steps, in_task_runs
from psflow.tasks.evaluation.worker import Outcome
from psflow.tasks.tracking.child_run import child_run_lacks, open_child_run
from psflow.tasks.tracking.tracker import Tracker

KIND = "evaluate"


def evaluate(parameters: EvaluateParameters) -> dict[str, Any]:
    """Run the evaluation flow in this process, with a local Prefect server if none is named.

    Returns
    -------
    dict
        The facts of `ReplayResults.facts`, and ``wall_secs``.

    Raises
    ------
    UsageError
        If the request is invalid; nothing was evaluated then.
    EvaluationFailedError
        If checkpoints could not be evaluated; all others were.
    SystemExit
        With 128 + the number of the signal, if one ended it.
    """
    return invoke(evaluate_flow, parameters, prepared)


@contextmanager
def prepared(parameters: EvaluateParameters) -> Iterator[ReplayPlan]:
    """Find the checkpoints, open the inputs, and call the model on a batch of each; changes nothing.

    Raises UsageError if any of these is invalid.
    """
    yield plan_replay(parameters)


def _flow_run_name() -> str:
    parameters: EvaluateParameters = flow_run.parameters["parameters"]
    return f"evaluate {parameters.title} {parameters.checkpoints}"


@public_flow(name="evaluate", flow_run_name=_flow_run_name)
def evaluate_flow(parameters: EvaluateParameters) -> dict[str, Any] | State[Any]:
    """Evaluate checkpoints that are not recorded yet, and write the results to the record and an MLflow run.

    Parameters
    ----------
    parameters : EvaluateParameters
        Which checkpoints to evaluate, on what, and where.

    Returns
    -------
    dict
        As `evaluate` does; a Cancelled state if a signal ended it.
    """
    with invoked(parameters, prepared) as invocation, Interrupts() as interrupts:
        plan: ReplayPlan = invocation.prepared
        results = ReplayResults(plan, get_run_logger())
        with closing(Artifacts(plan.training.parameters.experiment)) as artifacts:
            try:
                _run(plan, parameters, results, artifacts, interrupts.check)
            except INTERRUPTIONS as interrupted:
                return invocation.cancelled(interrupted, "run the same command again to continue where it ended")
            finally:
                artifacts.table("replay", results.rows(), "Metrics of each requested checkpoint.")
        facts = results.facts() | {"wall_secs": round(time.monotonic() - invocation.started, 3)}
        results.raise_failures(facts)
        return facts


def _run(
    plan: ReplayPlan,
    parameters: EvaluateParameters,
    results: ReplayResults,
    artifacts: Artifacts,
    check: Callable[[], None],
) -> None:
    for sentence in plan.ignored:
        get_run_logger().warning("%s", sentence)
    get_run_logger().info(
        "the record already holds %s of %s evaluations", len(plan.known), len(plan.known) + plan.num_wanted
    )
    if not plan.wanted:
        if _mlflow_lacks_some(plan):
            with _recorded(plan, results) as tracker:
                results.record_in(tracker)
        return
    with ExitStack() as stack:
        tracker = stack.enter_context(_recorded(plan, results))
        stack.enter_context(_pinned(plan))
        num_workers = min(parameters.cluster.workers, plan.num_wanted)
        address, warn = parameters.cluster.address, get_run_logger().warning
        client = stack.enter_context(open_cluster(address, num_workers, warn=warn))
        results.record_in(tracker)
        if tracker.page is not None:
            artifacts.link("replay-mlflow-run", tracker.page, f"MLflow run {tracker.run_id}")
        replay = stack.enter_context(Replay(client, plan.job, plan.wanted))
        outcomes = _outcomes(replay, plan, parameters.cluster.admission_timeout_secs, check)
        for outcome in stack.enter_context(closing(outcomes)):  # ends the task runs in any case
            artifacts.progress(100.0 * results.take(outcome) / plan.num_wanted, "Finished evaluations.")


def _outcomes(
    replay: Replay, plan: ReplayPlan, timeout_secs: float, check: Callable[[], None]
) -> Generator[Outcome, None, None]:
    """Yield outcomes, while a task run represents each checkpoint."""
    with TaskRuns() as task_runs:
        for steps in in_task_runs(list(plan.wanted)):
            title = "..".join(map(str, dict.fromkeys((steps[0], steps[-1]))))
            task_runs.submit(evaluate_steps, title, steps, replay, task_runs.stop)
        yield from replay.outcomes(timeout_secs, check)


@contextmanager
def _recorded(plan: ReplayPlan, results: ReplayResults) -> Iterator[Tracker]:
    """Open the MLflow run of the evaluations of a training; end it with the block."""
    experiment = plan.training.parameters.experiment
    tracker = open_child_run(
        plan.tracked.store,
        kind=KIND,
        experiment=experiment,
        model_dir=plan.training.model_dir,
        parent=plan.tracked.run,
        run_name=f"evaluate {experiment}",
        tags=_tags(plan),
        datasets=plan.datasets,
        is_new=plan.is_forced,
    )
    with closed_on_error(tracker):
        yield tracker
    if not tracker.close("FAILED" if results.failures else "FINISHED"):
        get_run_logger().warning(
            "MLflow did not store everything; the next evaluation of this training writes the rest"
        )


def _mlflow_lacks_some(plan: ReplayPlan) -> bool:
    """Return whether an earlier replay recorded evaluations and ended before MLflow had them."""
    return child_run_lacks(
        plan.tracked.store,
        plan.known,
        kind=KIND,
        experiment=plan.training.parameters.experiment,
        model_dir=plan.training.model_dir,
        parent=plan.tracked.run,
    )


def _tags(plan: ReplayPlan) -> Mapping[str, str]:
    return {"psflow.prefect_flow_run": str(flow_run.id), "psflow.checkpoints": plan.selection}


@contextmanager
def _pinned(plan: ReplayPlan) -> Iterator[None]:
    """Protect the checkpoints from removal by a running training, if the directory is writable."""
    store = CheckpointStore(plan.training.model_dir)
    with ExitStack() as stack:
        is_writable = not store.files.is_local or os.access(store.files.root, os.W_OK)
        for step in plan.wanted if is_writable else ():
            with suppress(CheckpointError):  # removed already: its evaluation reports that
                stack.enter_context(store.pin(step, "evaluate"))
        yield
