"""Reports a running job from its events: terminal, log, Prefect, MLflow."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, assert_never

from psflow.flows.parameters.train import TrainParameters
from psflow.flows.reporting.artifacts import Artifacts, PageLinks
from psflow.flows.reporting.plotting import Plotter
from psflow.flows.reporting.progress import Progress, TerminalLine, not_on_terminals, shown_metrics
from psflow.flows.reporting.role_figures import host_tag
from psflow.flows.timings import timings
from psflow.ps_runtime.checkpoint.typed_json import metrics_to_json
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.deadline import stop_clock
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.roles.events import (
    Checkpoint,
    Evaluation,
    Event,
    Export,
    FirstStep,
    LogMessage,
    Metrics,
    PsListening,
    RecordedEvent,
    Restored,
    RoleEnded,
    RoleLeaving,
    RoleLost,
    RoleStarted,
    SummaryFile,
    TrainingLoss,
    WorkersMissing,
)
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.tasks.role_runs import RoleLogs
from psflow.tasks.tracking.context import SystemMetrics
from psflow.tasks.tracking.lost_steps import LostSteps
from psflow.tasks.tracking.tracker import Tracker

_log = logging.getLogger(__name__)


class Ending:
    """Keeps the first error of several ``with`` blocks, so that each runs even if an earlier one raises.

    Notes
    -----
    An interruption, such as a second Ctrl-C, takes precedence over errors. Later errors are logged.
    """

    def __init__(self, error: BaseException | None) -> None:
        self._cause = error
        self._first = error
        self._interruption: BaseException | None = None

    @property
    def is_well(self) -> bool:
        """Whether no error has occurred so far."""
        return self._first is None

    def check(self) -> None:
        """Raise the first error, unless an error is already being raised; always raise an interruption."""
        if self._interruption is not None:
            raise self._interruption
        if self._cause is None and self._first is not None:
            raise self._first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            self._interruption = self._interruption or error
        if self._first is None:
            self._first = error
        elif isinstance(error, Exception):
            speaks_for_itself = isinstance(error, OSError | PsflowError)
            text = "another error at the end of the job, %s: %s"
            _log.warning(text, type(error).__name__, error, exc_info=None if speaks_for_itself else error)
        return True


LoggerLike = logging.Logger | logging.LoggerAdapter[logging.Logger]

LOG_SECS = 30.0
"""Seconds between progress lines in a log."""
NOTE_SECS = 10.0
"""Seconds between writes of progress and system metrics to MLflow."""
SLICE_SECS = 0.5
"""Seconds between updates of the line in a terminal."""
PLOT_SECS = 30.0
"""Timeout of the last plots; a slow model_fn may delay them."""
JOIN_SECS = 10.0
"""Timeout of the thread as the block ends: its store may hang."""
ARTIFACT_SECS = 4.0
"""Timeout of the last artifacts; half of it if the user waits for the end."""


@dataclass(frozen=True)
class Watched:
    """The job that is watched."""

    job: JobSpec
    parameters: TrainParameters
    evaluated_on: SplittableInput | None
    links: PageLinks
    on_disk: Callable[[], Sequence[RecordedEvent]] = tuple


class Watch:
    """Reports one attempt at a job during a ``with`` block.

    Notes
    -----
    `handle` does not block; threads do the rest and end with the block. Every step of the shutdown runs, even if
    another fails or is interrupted. The block raises an interruption, else its own error, else the first other error.
    """

    def __init__(self, watched: Watched, tracker: Tracker, logger: LoggerLike) -> None:
        self._watched = watched
        self._tracker = tracker
        self._logger = logger
        job = watched.job
        self.logs = RoleLogs.of(job.model_dir)
        self._lost_steps = LostSteps(tracker.tags, tracker.newest_step)
        self._progress = Progress(job.train_spec.max_steps, watched.parameters.best.metric)
        self._progress.num_lost_steps = self._lost_steps.num_steps
        self._tags_lock = threading.Lock()
        self._artifacts: Artifacts
        self._plotter: Plotter | None = None
        self._evaluations: dict[tuple[int, str], dict[str, Any]] = {}
        self._system = SystemMetrics()
        self._line = TerminalLine()
        self._stack = ExitStack()
        self._has_lost = threading.Event()
        self._is_over = threading.Event()
        context = contextvars.copy_context()  # it holds the flow run and the server of its log
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="psflow-watch", daemon=True)

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # __exit__ is not called if a part of this fails
            stack.callback(self.logs.close)
            self._artifacts = Artifacts(self._watched.parameters.experiment)
            stack.callback(self._artifacts.close, ARTIFACT_SECS / 2)
            if self._watched.parameters.plots:
                self._plotter = self._new_plotter()
                stack.callback(self._close_plotter, draws=False)
            self._catch_up()
            self._link()
            stack.callback(self._stack.close)
            self._stack.enter_context(self._line)
            stack.callback(self._is_over.set)
            self._thread.start()
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        ending = Ending(error)
        with ending:
            self._thread.join(stop_clock.limited(JOIN_SECS))
        with ending:
            self._catch_up_with_losses()
        with ending:
            self._stack.close()
        for show in (self._log_progress, self._note, self._show_evaluations, self._show_in_prefect):
            with ending:
                show()
        with ending:
            self._close_plotter(draws=ending.is_well)
        with ending:
            self._artifacts.close(ARTIFACT_SECS if ending.is_well else ARTIFACT_SECS / 2)
        with ending:
            self.logs.close()
        ending.check()

    @property
    def first_step_at(self) -> float | None:
        """Unix time of the first training step of any replica."""
        return self._progress.first_step_at

    def handle(self, event: Event) -> None:
        """Process an event; events of one role come in order. Does not block."""
        timings.handle(event)
        match event:
            case LogMessage():
                self.logs.handle(event)
            case FirstStep():
                self._progress.handle(event)
                if self._plotter is not None:
                    self._plotter.prepare()
            case WorkersMissing():
                self._progress.handle(event)
            case Restored():
                self._log_lost_steps(event)
            case RoleLost():
                self._progress.handle(event)
                also = "all roles roll back to the last checkpoint" if event.rolls_back else "no step is lost"
                self._logger.warning("%s was lost and restarts: %s; %s", event.role, event.reason, also)
                self._has_lost.set()
            case Metrics() | Checkpoint() | Evaluation() | Export():
                self._show(event)
                self._log(event)
                if self._plotter is not None:
                    self._plotter.handle(event)
                self._record(event)
            case SummaryFile():
                self._tracker.put_file(event.file, b64decode(event.content_base64))
            case RoleStarted():
                self._tracker.put_tags({host_tag(event.role): event.host})
            case TrainingLoss() | PsListening() | RoleLeaving() | RoleEnded():
                pass
            case _:
                assert_never(event)

    def _new_plotter(self) -> Plotter:
        job, tracker = self._watched.job, self._tracker
        return Plotter(
            job,
            self._watched.evaluated_on,
            tracker.put_file,
            (lambda: tracker.history("loss")) if job.attempt > 1 else None,
        )

    def _catch_up(self) -> None:
        """Process records on disk that a lost process may not have reported; nothing is recorded twice."""
        for event in self._watched.on_disk():
            self._show(event)
            if self._plotter is not None:
                self._plotter.restore(event)
            self._record(event)

    def _record(self, event: RecordedEvent) -> None:
        self._tracker.handle(event)
        if isinstance(event, Export) and self._watched.parameters.best.register_each:
            self._tracker.register(event)

    def _catch_up_with_losses(self) -> None:
        if self._has_lost.is_set():
            self._has_lost.clear()
            self._catch_up()

    def _log_lost_steps(self, event: Restored) -> None:
        """Log the number of lost steps; MLflow keeps their points, so a tag of the run lists them."""
        with self._tags_lock:
            lost = self._lost_steps.roll_back(event.step, self._progress.step)
            self._progress.handle(event)
            self._progress.num_lost_steps = self._lost_steps.num_steps
            if lost:
                self._tracker.put_tags(self._lost_steps.tags(event.step))
        if lost:
            self._logger.warning("training continues from step %d; steps %s are lost and repeated", event.step, lost)

    def _show(self, event: RecordedEvent) -> None:
        """Add an event to the progress line and the table of evaluations."""
        self._progress.handle(event)
        if isinstance(event, Evaluation):
            name = event.name or "eval"
            row = {"step": event.step, "evaluation": name, **metrics_to_json(event.metrics)}
            self._evaluations[event.step, name] = row

    def _log(self, event: RecordedEvent) -> None:
        """Log rare events."""
        match event:
            case Checkpoint():
                self._logger.info("saved checkpoint of step %s in %s", event.step, event.path)
            case Evaluation():
                of = f" on {event.name}" if event.name else ""
                self._logger.info("evaluation of step %s%s: %s", event.step, of, shown_metrics(event.metrics))
            case Export():
                what = "the best model so far" if event.is_best else "the model"
                self._logger.info("exported %s, step %s, to %s", what, event.step, event.path)
            case Metrics():
                pass  # frequent: shown in the progress line
            case _:
                assert_never(event)

    def _run(self) -> None:
        logged_at = noted_at = time.monotonic()
        while not self._is_over.wait(SLICE_SECS):
            now = time.monotonic()
            self._catch_up_with_losses()
            self._line.show(self._progress.line())
            self._show_in_prefect()
            if now - logged_at >= LOG_SECS:
                logged_at = now
                extra = not_on_terminals if self._line.is_shown else {}
                self._logger.info(self._progress.line(), extra=extra)
            if now - noted_at >= NOTE_SECS:
                noted_at = now
                self._note()

    def _log_progress(self) -> None:
        self._logger.info(self._progress.line())

    def _show_evaluations(self) -> None:
        self._artifacts.table("evaluations", list(self._evaluations.values()), "All evaluated checkpoints.")

    def _close_plotter(self, *, draws: bool) -> None:
        if self._plotter is not None:
            self._plotter.close(stop_clock.limited(PLOT_SECS) if draws else 0.0, draws=draws)

    def _show_in_prefect(self) -> None:
        self._artifacts.progress(self._progress.percent or 0.0, self._progress.line())

    def _note(self) -> None:
        with self._tags_lock:  # else a step of a lost branch could be recorded as valid
            at = self._lost_steps.reached_tag(self._progress.step)
            self._tracker.put_tags({"psflow.progress": self._progress.line()} | at)
        self._tracker.handle(Metrics(self._progress.step, self._system.sample() | self._progress.figures()))

    def _link(self) -> None:
        page, dashboard = self._tracker.page, self._watched.links.dask_dashboard
        self._artifacts.label(**{"psflow.mlflow_run": self._tracker.run_id})
        if page is not None:
            self._artifacts.link("mlflow-run", page, f"MLflow run {self._tracker.run_id}")
        if dashboard is not None:
            self._artifacts.link("dask-dashboard", dashboard, "Dask dashboard", "Available while the cluster runs.")
