"""Plans a training and reports faults before anything is started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import assert_never

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from psflow.flows.parameters.cluster import ClusterParameters
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.planning.building import build_training
from psflow.flows.planning.restart import StartPlan, plan_start, with_model_dir
from psflow.flows.timings import timings
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.cluster.admission import check_capacity
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.missing_workers import slots_needed
from psflow.ps_runtime.config.files import Settings
from psflow.ps_runtime.data.reading_progress import CallProgress, LoggedProgress, ScanProgress, watched_by
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import ModelDirError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.model_dir import Fork
from psflow.ps_runtime.specs.roles import job_roles
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.tracking.store import prepare_store

POLL_SECS = 0.5


def _say(text: str, *arguments: object) -> None:
    """Log a line, as Prefect shows it; its import takes a second, which a plan without such a line does not need."""
    from prefect.logging import get_logger

    get_logger("psflow").info(text, *arguments)


def await_model_dir(parameters: TrainParameters, say: Callable[[str], None]) -> None:
    """Return once no other process runs the job that `parameters` name.

    Raises ModelDirError if another process runs it, at once or after the timeout; at once if model_dir is a copy of
    that of the job.

    Notes
    -----
    Of two waiting processes, one claims the job, and the other is refused.
    """
    resume, timeout_secs = parameters.resume, parameters.cluster.admission_timeout_secs
    job = JobFile(resume.fork or parameters.model_dir)
    job.check_place()
    deadline = Deadline(timeout_secs)
    has_said = False
    while (refusal := job.refusal()) is not None:
        if resume.when_running == "fail" or deadline.has_passed:
            raise ModelDirError((refusal,))
        if not has_said:
            say(f"waiting up to {timeout_secs:g} s: {refusal.partition(';')[0]}")
            has_said = True
        time.sleep(POLL_SECS)


SHOWN_AFTER_SECS = 2.0


class ReadingBar:
    """Shows a scan, or a call of a user function, that takes more than two seconds."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: ScanProgress | CallProgress) -> None:
        """Update the bar of a scan or a call; hide it at its end."""
        if progress.secs < SHOWN_AFTER_SECS:
            return
        match progress:
            case ScanProgress(where=where, done_bytes=done, num_bytes=num_bytes):
                self._show(f"reading {where}", progress.has_ended, done, num_bytes)
            case CallProgress(where=where, has_ended=has_ended):
                self._show(f"{where} is running", has_ended)
            case _:
                assert_never(progress)

    def _show(self, what: str, has_ended: bool, done: int = 0, total: int | None = None) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bar.add_task(what, total=total)
        self._bar.update(self._tasks[what], completed=done, visible=not has_ended)


@contextmanager
def shown_reading() -> Iterator[None]:
    """Show long reads and calls of the block, in the log if stderr is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        with watched_by(LoggedProgress(_say)):
            yield
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar, watched_by(ReadingBar(bar)):
        yield


@dataclass(frozen=True)
class TrainingPlan:
    """A checked job, and the address of the MLflow store that will record it."""

    start: StartPlan
    attempt: Attempt
    store: str


@contextmanager
def planned_training(parameters: TrainParameters, settings: Settings | None = None) -> Iterator[TrainingPlan]:
    """Wait for the model_dir, if requested, and check everything that can be checked before the start.

    Raises UsageError if the training is invalid.
    """
    parameters = with_model_dir(parameters)
    await_model_dir(parameters, say=_say)
    start = plan_start(parameters, settings)
    attempt = plan_attempt(start.parameters, start.fork)
    _check_cluster(start.parameters.cluster)
    timings.mark("plan")
    store = prepare_store()
    timings.mark("MLflow store")
    yield TrainingPlan(start, attempt, store)


def _check_cluster(cluster: ClusterParameters) -> None:
    """Refuse a cluster that does not answer or has too few slots, before a run is created."""
    if cluster.address is not None:
        roles = job_roles(cluster.ps, cluster.most_workers, evaluator=True)
        with open_cluster(cluster.address, len(roles), warn=lambda fault: None) as client:  # logged by the flow
            check_capacity(client, slots_needed(roles, cluster.workers_to_begin), grows=cluster.adaptive)


def plan_attempt(parameters: TrainParameters, fork: Fork | None = None) -> Attempt:
    """Open the inputs, call the model on a batch of each, and check model_dir; nothing is started.

    Raises UsageError if any of these is invalid.
    """
    training = build_training(parameters)
    MlflowModelWriter().check(training.estimator.model_fn, training.estimator.params)
    with shown_reading():
        return Attempt(
            training.estimator,
            training.train_spec,
            training.eval_specs,
            num_ps=parameters.cluster.ps,
            num_workers=parameters.cluster.most_workers,
            transport=parameters.transport,
            fork=fork,
        )
