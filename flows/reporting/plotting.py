"""Draws plots of a running job for its MLflow run, in a background thread."""

from __future__ import annotations

import atexit
import contextvars
import copy
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import assert_never

from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Export, Metrics, RecordedEvent
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.tasks.plots import class_scores, classifier_plots, import_libraries, learning_curves
from psflow.tasks.tracking.store import reason_of

FOLDER = "plots"
MAX_POINTS = 4000
"""Maximum number of points of the training loss; beyond it every other point is dropped."""
FIRST_SECS = 30.0
"""Seconds before the first plot, unless the job ends sooner: a short job is drawn once."""
CANCEL_SECS = 5.0
"""Timeout, as the process ends, of the batch or plot that is under way when plots are given up."""
REST = 20
"""Plots take at most a twentieth of the time: each needs a second of a processor that training may use."""

_log = logging.getLogger(__name__)


class Curves:
    """Points of learning curves, by global_step; a point reported again after a resume counts once."""

    def __init__(self) -> None:
        self.loss: dict[int, float] = {}
        self.evaluations: dict[str, dict[str, dict[int, float]]] = {}
        self.best: int | None = None
        self.best_export = ""

    def handle(self, event: RecordedEvent) -> None:
        """Take an event of a role."""
        match event:
            case Metrics():
                if "loss" in event.values:
                    self.loss[event.step] = event.values["loss"]
                if len(self.loss) > MAX_POINTS:
                    self.loss = dict(sorted(self.loss.items())[::2])
            case Evaluation():
                curves = self.evaluations.setdefault(event.name or "eval", {})
                for metric, value in event.metrics.items():
                    curves.setdefault(metric, {})[event.step] = value
            case Export():
                if event.is_best:
                    self.best, self.best_export = event.step, event.path
            case Checkpoint():
                pass
            case _:
                assert_never(event)

    def png(self) -> bytes:
        """Draw the curves."""
        evaluations = {
            name: {metric: list(points.items()) for metric, points in metrics.items()}
            for name, metrics in self.evaluations.items()
        }
        return learning_curves(sorted(self.loss.items()), evaluations, self.best)


class Plotter:
    """Draws learning curves, and classifier plots of the best checkpoint, after each new best and at the end.

    Notes
    -----
    `handle` does not block. Plots are drawn in the process of the flow, which has the data set open and most libraries
    imported; an evaluator would keep the memory. Of the best checkpoints that arrive during drawing, only the last is
    drawn. A failure is logged once, and the job goes on.
    """

    def __init__(
        self,
        job: JobSpec,
        evaluated_on: SplittableInput | None,
        put: Callable[[str, bytes], None],
        loss_before: Callable[[], Sequence[tuple[int, float]]] | None = None,
    ) -> None:
        self._job = job
        self._evaluated_on = evaluated_on
        self._put = put
        self._loss_before = loss_before
        self._curves = Curves()
        self._lock = threading.Lock()
        self._is_stale = False
        self._scored: int | None = None
        self._has_failed = False
        self._has_begun = threading.Event()
        self._is_closing = threading.Event()
        self._is_given_up = threading.Event()
        self._has_best = threading.Event()
        context = contextvars.copy_context()  # it holds the flow run, for the log
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="psflow-plotter", daemon=True)
        self._thread.start()

    def handle(self, event: RecordedEvent) -> None:
        """Take an event of a role."""
        with self._lock:
            self._curves.handle(event)
            self._is_stale |= isinstance(event, Evaluation | Export)
        if isinstance(event, Export) and event.is_best:
            self._has_begun.set()
            self._has_best.set()

    def restore(self, event: RecordedEvent) -> None:
        """Process an event of an earlier attempt, which needs no new plot."""
        with self._lock:
            self._curves.handle(event)
            self._scored = self._curves.best

    def prepare(self) -> None:
        """Import the libraries of plots in the background, while the roles train. Idempotent."""
        self._has_begun.set()

    def close(self, timeout_secs: float, *, draws: bool = True) -> None:
        """End the thread; if it `draws`, draw new points first, unless that takes too long. Idempotent."""
        if not draws:
            self._is_stale = False
        self._is_closing.set()
        self._has_begun.set()
        self._has_best.set()
        try:
            self._thread.join(timeout_secs)
        finally:
            self._is_given_up.set()
            if self._thread.is_alive():
                atexit.register(self._thread.join, CANCEL_SECS)  # one that is stopped in C++ code aborts the process
        if draws and self._thread.is_alive():
            _log.warning("plots may be missing in MLflow: they were not drawn within %g s", timeout_secs)

    def _run(self) -> None:
        self._has_begun.wait()
        if not self._is_closing.is_set():
            self._attempt(import_libraries)
        rest_secs = FIRST_SECS
        while not self._is_closing.wait(rest_secs):
            self._has_best.wait()
            self._has_best.clear()
            started = time.monotonic()
            self._draw()
            rest_secs = REST * (time.monotonic() - started)
        self._draw()

    def _draw(self) -> None:
        if self._is_stale:
            self._is_stale = False
            if self._loss_before is not None:
                self._attempt(self._recall_loss)
            self._attempt(self._draw_curves)
            self._attempt(self._draw_classifier)

    def _recall_loss(self) -> None:
        assert self._loss_before is not None
        before, self._loss_before = self._loss_before, None
        known = dict(before())
        with self._lock:
            self._curves.loss = known | self._curves.loss

    def _draw_curves(self) -> None:
        with self._lock:
            curves = copy.deepcopy(self._curves)
        self._put(f"{FOLDER}/learning_curves.png", curves.png())

    def _draw_classifier(self) -> None:
        with self._lock:
            step, export = self._curves.best, self._curves.best_export
        if step is None or step == self._scored or self._evaluated_on is None:
            return
        scores = class_scores(self._job, export, self._evaluated_on, self._is_given_up.is_set)
        self._scored = step
        if scores is not None and not self._is_given_up.is_set():
            for file, content in classifier_plots(scores, f"best checkpoint, step {step}").items():
                self._put(f"{FOLDER}/{file}", content)

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._is_given_up.is_set():
            return
        try:
            work()
        except Exception as error:  # model_fn failed, export removed, server unavailable: training goes on
            if not self._has_failed:
                speaks_for_itself = isinstance(error, OSError | PsflowError)
                _log.warning("could not draw a plot: %s", reason_of(error), exc_info=not speaks_for_itself)
            self._has_failed = True
