"""The training flow: a cluster, a job on it, each role a task run, everything in one MLflow run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.logging import get_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled

from flows.artifacts import show_summary
from flows.beginning import Beginning, begin, placed, tell
from flows.building import build_training
from flows.flow_run_labels import label_flow_run
from flows.interrupts import InterruptedRunError, Interrupts
from flows.invocation import invoke, invoked
from flows.links import Links, current_links
from flows.parameters import ClusterParameters, TrainParameters
from flows.recording import open_tracker, what_is_on_disk
from flows.resolved_config import write_config
from flows.summary import Outcome, summarize
from flows.turns import await_turn
from flows.watching import Watch, Watched
from ps_runtime.cluster.admission import Patience, check_capacity
from ps_runtime.cluster.connecting import open_cluster
from ps_runtime.cluster.launch import ClusterJob
from ps_runtime.config.files import Settings
from ps_runtime.estimator.attempt import Attempt
from ps_runtime.estimator.fork import Fork
from ps_runtime.specs.roles import job_roles
from tasks.export import MlflowModelWriter, check_exportable
from tasks.owners import JOB_ID, MODEL_DIR
from tasks.role import run_role
from tasks.role_logs import RoleLogs
from tasks.tracking.store import prepare_store
from tasks.tracking.tracker import Tracker

__all__ = ["Planned", "plan_attempt", "planned_training", "train", "train_flow"]

CLUSTER_TIMEOUT_SECS = 60.0
TASK_RUN_END_SECS = 2.0
"""For the task run of a role to take over how the role has ended."""


def train(parameters: TrainParameters, settings: Settings | None = None) -> dict[str, Any]:
    """Run the training flow in this process, with a local Prefect server if none is named; return its summary.

    Parameters
    ----------
    parameters : TrainParameters
    settings : Settings, optional
        From which they were made: they say where each value was set.

    Raises
    ------
    UsageError
        If something asked for cannot be; nothing was started then.
    SystemExit
        With 128 + the number of the signal, if one ended it.
    """
    return invoke(train_flow, parameters, partial(planned_training, settings=settings))


@dataclass(frozen=True)
class Planned:
    """A job that nothing is known to be wrong with, and the address of the MLflow store that will record it."""

    beginning: Beginning
    attempt: Attempt
    store: str


@contextmanager
def planned_training(parameters: TrainParameters, settings: Settings | None = None) -> Iterator[Planned]:
    """Wait for the model_dir, where that is asked for, and find out whatever can be known before anything is started.

    Parameters
    ----------
    parameters : TrainParameters
    settings : Settings, optional
        From which they were made.

    Raises
    ------
    UsageError
        Whatever is wrong.
    """
    parameters = placed(parameters)
    await_turn(parameters, say=get_logger("psflow").info)
    beginning = begin(parameters, settings)
    attempt = plan_attempt(beginning.parameters, beginning.fork)
    _check_cluster(beginning.parameters.cluster)
    yield Planned(beginning, attempt, prepare_store())


def _check_cluster(cluster: ClusterParameters) -> None:
    """Refuse a cluster that does not answer, or has too few slots, before there is a run that fails."""
    if cluster.address is not None:
        num_roles = len(job_roles(cluster.ps, cluster.workers, evaluator=True))
        with open_cluster(cluster.address, num_roles, CLUSTER_TIMEOUT_SECS) as client:
            check_capacity(client, num_roles)


def plan_attempt(parameters: TrainParameters, fork: Fork | None = None) -> Attempt:
    """Open the inputs, call the model on a batch of each, and look at model_dir; nothing is started.

    Raises
    ------
    UsageError
        Whatever is wrong with any of these.
    """
    training = build_training(parameters)
    check_exportable(training.estimator.model_fn, training.estimator.params)
    return Attempt(
        training.estimator,
        training.train_spec,
        training.eval_specs,
        num_ps=parameters.cluster.ps,
        num_workers=parameters.cluster.workers,
        transport=parameters.transport,
        fork=fork,
    )


def _flow_run_name() -> str:
    parameters: TrainParameters = flow_run.parameters["parameters"]
    steps = parameters.train.max_steps
    return f"train {parameters.experiment}{'' if steps is None else f' to {steps}'}"


@flow(name="train", flow_run_name=_flow_run_name, persist_result=False)
def train_flow(parameters: TrainParameters) -> dict[str, Any] | State[Any]:
    """Train, evaluate every checkpoint, and register the best model.

    Parameters
    ----------
    parameters : TrainParameters

    Returns
    -------
    dict
        The summary; a Cancelled state if a signal ended the roles.
    """
    with invoked(parameters, planned_training) as invocation, Interrupts() as interrupts:
        try:
            planned = invocation.prepared
            tell(planned.beginning, get_run_logger())
            with planned.attempt:
                label_flow_run(**{JOB_ID: planned.attempt.record.job_id, MODEL_DIR: planned.attempt.model_dir})
                write_config(planned.attempt.model_dir, planned.beginning.parameters)
                outcome = _run(planned, planned.beginning.parameters, interrupts)
        except InterruptedRunError as interrupted:
            invocation.received = interrupted.received
            return Cancelled(message=f"{interrupted}; the same command resumes from the last checkpoint")
        summary = summarize(outcome, wall_secs=time.monotonic() - invocation.started)
        show_summary(parameters.experiment, summary)
        return summary


def _run(planned: Planned, parameters: TrainParameters, interrupts: Interrupts) -> Outcome:
    attempt = planned.attempt

    def check() -> None:
        interrupts.check()
        attempt.check()

    trained_on = attempt.plan.datasets.get("train")
    job = attempt.job(MlflowModelWriter(() if trained_on is None else trained_on.columns))
    cluster = parameters.cluster
    patience = Patience(cluster.admission_timeout_secs, cluster.when_full == "wait", get_run_logger().info)
    with ExitStack() as stack:
        client = stack.enter_context(open_cluster(cluster.address, len(job.roles), CLUSTER_TIMEOUT_SECS))
        check_capacity(client, len(job.roles))
        check()
        links = current_links(client, attempt.model_dir, parameters)
        tracker = stack.enter_context(_recorded(planned, parameters, links))
        watched = Watched(job, parameters, attempt.plan.datasets.get("eval"), links, what_is_on_disk(attempt))
        with Watch(watched, tracker, get_run_logger()) as watch:
            reports = _run_roles(ClusterJob(client, job, watch.handle), patience, check, watch.logs)
        if tracker.close("FINISHED"):
            attempt.note_completed(reports["chief-0"]["statistics"]["job"]["global_step"])
        else:
            get_run_logger().warning(
                "MLflow did not take everything; the same command writes what is on disk, metrics of training are not"
            )
    return Outcome(job, reports, tracker.run_id, tracker.best, watch.first_step_at, tracker.page, links.prefect_page)


@contextmanager
def _recorded(planned: Planned, parameters: TrainParameters, links: Links) -> Iterator[Tracker]:
    """Open the MLflow run of the job; end it as the block ends."""
    tracker = open_tracker(planned.store, planned.attempt, parameters, links)
    try:
        planned.attempt.note_run(tracker.run_id)
        yield tracker
    except (InterruptedRunError, KeyboardInterrupt):
        tracker.close("KILLED", timeout_secs=2.0)
        raise
    except BaseException:
        tracker.close("FAILED", timeout_secs=5.0)
        raise


def _run_roles(
    run: ClusterJob, patience: Patience, check: Callable[[], None], logs: RoleLogs
) -> dict[str, dict[str, Any]]:
    """Start all roles, each with a task run of its own, and wait until they have ended; return their reports."""
    stop = threading.Event()
    task_runs = []
    try:
        with run:
            run.start(patience, check)
            task_runs = [run_role.submit(role, run, stop, logs) for role in run.job.roles]
            return run.join(check)
    finally:
        stop.set()
        for task_run in task_runs:
            task_run.wait(TASK_RUN_END_SECS)
