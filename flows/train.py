"""Training flow: runs a job on a cluster, with a task run for each role and one MLflow run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from prefect import get_run_logger
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from psflow.flows.invocation import invoke, invoked
from psflow.flows.parameters.configuration import write_config
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.planning.restart import log_changes
from psflow.flows.planning.training_plan import TrainingPlan, planned_training
from psflow.flows.prefect_runs import TaskRuns, label_flow_run, public_flow
from psflow.flows.reporting.artifacts import PageLinks, current_links, show_summary
from psflow.flows.reporting.recording import closed_on_error, open_tracker, put_config
from psflow.flows.reporting.summary import Outcome, summarize
from psflow.flows.reporting.watch import Watch, Watched
from psflow.flows.stopping.interrupts import INTERRUPTIONS, Interrupts
from psflow.flows.timings import timings
from psflow.ps_runtime.cluster.admission import AdmissionPolicy, check_capacity
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.cluster.missing_workers import slots_needed
from psflow.ps_runtime.config.files import Settings
from psflow.ps_runtime.estimator.attempt import FLOW_RUNS
from psflow.tasks.exports.exported import best_export
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.orphaned_runs import close_orphaned_runs
from psflow.tasks.owners import JOB_ID, MODEL_DIR, TO_COMPLETE
from psflow.tasks.recorder import events_on_disk
from psflow.tasks.role_runs import RoleLogs, run_role
from psflow.tasks.tracking.tracker import Tracker
from psflow.tasks.tracking.writes import keep_pending, read_pending


def train(parameters: TrainParameters, settings: Settings | None = None) -> dict[str, Any]:
    """Run the training flow in this process, with a local Prefect server if none is named; return its summary.

    Raises
    ------
    UsageError
        If the request is invalid; nothing was started then.
    SystemExit
        With 128 + the number of the signal, if one ended it.
    """
    return invoke(train_flow, parameters, partial(planned_training, settings=settings), closes_mlflow_runs=False)


def _flow_run_name() -> str:
    parameters: TrainParameters = flow_run.parameters["parameters"]
    steps = parameters.train.max_steps
    return f"train {parameters.experiment}{'' if steps is None else f' to {steps}'}"


@public_flow(name="train", flow_run_name=_flow_run_name)
def train_flow(parameters: TrainParameters) -> dict[str, Any] | State[Any]:
    """Train, evaluate every checkpoint, and register the best model.

    Parameters
    ----------
    parameters : TrainParameters
        The whole configuration of the training; the Prefect UI builds its form from it.

    Returns
    -------
    dict
        The summary; a Cancelled state if a signal ended the roles.
    """
    with invoked(parameters, planned_training) as invocation, Interrupts() as interrupts:
        timings.mark("start of the flow run")
        try:
            planned = invocation.prepared
            log_changes(planned.start, get_run_logger())
            for name, dataset in planned.attempt.plan.datasets.items():
                if dataset.non_finite.num_rows:
                    get_run_logger().warning("%s: %s", name, dataset.non_finite)
                for line in dataset.invalid.lines():
                    get_run_logger().warning("%s: %s; %s", name, dataset.invalid, line)
            with planned.attempt:
                label_flow_run(**{JOB_ID: planned.attempt.record.job_id, MODEL_DIR: planned.attempt.model_dir})
                write_config(planned.attempt.model_dir, planned.start.parameters)
                outcome = _run(planned, planned.start.parameters, interrupts)
        except INTERRUPTIONS as interrupted:
            return invocation.cancelled(interrupted, "run the same command again to resume from the last checkpoint")
        summary = summarize(outcome, wall_secs=time.monotonic() - invocation.started)
        show_summary(parameters.experiment, summary)
        return summary


def _run(planned: TrainingPlan, parameters: TrainParameters, interrupts: Interrupts) -> Outcome:
    attempt = planned.attempt

    def check() -> None:
        interrupts.check()
        attempt.check()

    job = attempt.job(MlflowModelWriter())
    cluster = parameters.cluster
    is_own = cluster.address is None  # no other job takes slots there, and slots of killed processes come back
    waits = is_own or cluster.when_full == "wait"
    policy = AdmissionPolicy(
        cluster.admission_timeout_secs, waits, get_run_logger().info, is_kept=is_own, grows=cluster.adaptive
    )
    with ExitStack() as stack:
        stack.callback(timings.mark, "end of the cluster")
        client = stack.enter_context(open_cluster(cluster.address, len(job.roles), warn=get_run_logger().warning))
        if not is_own:
            check_capacity(client, slots_needed(job.roles, cluster.workers_to_begin), grows=cluster.adaptive)
        check()
        timings.mark("cluster")
        links = current_links(client, attempt.model_dir, parameters, attempt.record.facts.get(FLOW_RUNS, {}))
        attempt.note_flow_runs(links.flow_runs)
        attempt.note_workers(cluster.min_workers or 0)
        tracker = stack.enter_context(_recorded(planned, parameters, links))
        timings.mark("MLflow run")
        watched = Watched(
            job, parameters, attempt.plan.datasets.get("eval"), links, partial(events_on_disk, attempt.model_dir)
        )
        with Watch(watched, tracker, get_run_logger()) as watch:
            run = ClusterJob(
                client,
                job,
                watch.handle,
                cluster.max_restarts,
                cluster.min_workers,
                probe_timeout_secs=cluster.probe_timeout_secs,
                placement=cluster.placement,
                slot_timeout_secs=cluster.slot_timeout_secs,
                usual_workers=cluster.workers,
                wanted_workers=attempt.wanted_workers,
            )
            reports = _run_roles(run, policy, check, watch.logs)
            timings.mark("end of all roles")
        timings.mark("last plots and artifacts")
        attempt.note_ended(reports["chief-0"]["statistics"]["job"]["global_step"])
        if (reason := attempt.end_reason()) is not None:
            tracker.put_tags({"psflow.stop_reason": reason})
        if (best := best_export(attempt.model_dir)) is not None:
            tracker.register(best)
        if tracker.close("FINISHED"):
            attempt.note_completed()
        timings.mark("end of the MLflow run")
    pages = tracker.page, links.prefect_page
    return Outcome(
        job,
        reports,
        tracker.run_id,
        tracker.best,
        watch.first_step_at,
        *pages,
        tracker.is_whole,
        tracker.num_lost,
        {name: dataset.non_finite for name, dataset in attempt.plan.datasets.items()},
        {name: dataset.invalid for name, dataset in attempt.plan.datasets.items()},
    )


@contextmanager
def _recorded(planned: TrainingPlan, parameters: TrainParameters, links: PageLinks) -> Iterator[Tracker]:
    """Open the MLflow run of the job; end it with the block, and keep pending writes."""
    model_dir = planned.attempt.model_dir
    close_orphaned_runs(in_prefect=False)
    tracker = open_tracker(planned.store, planned.attempt, parameters, links)
    try:
        with closed_on_error(tracker):
            planned.attempt.note_run(tracker.run_id)
            tracker.take_back(read_pending(model_dir, tracker.run_id))
            put_config(tracker, parameters)
            yield tracker
    finally:
        keep_pending(model_dir, tracker.run_id, tracker.waiting())
        if not tracker.is_whole:
            get_run_logger().warning("MLflow did not store everything; %s", TO_COMPLETE)


def _run_roles(
    run: ClusterJob, policy: AdmissionPolicy, check: Callable[[], None], logs: RoleLogs
) -> dict[str, dict[str, Any]]:
    """Start all roles, each with its task run, and wait for their end; return their reports."""
    with TaskRuns() as task_runs, run:
        run.start(policy, check)
        timings.mark("admission")
        for role in run.job.roles:
            task_runs.submit(run_role, role, run, task_runs.stop, logs)
        return run.join(check)
