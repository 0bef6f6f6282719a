"""Writes the events of a job to MLflow in the background, so that training never waits."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, assert_never

from psflow.ps_runtime.deadline import Deadline, stop_clock
from psflow.ps_runtime.errors import ConfigError
from psflow.ps_runtime.model.best import Better
from psflow.ps_runtime.model.export.directory import ExportDirectory, is_exported
from psflow.ps_runtime.redaction import without_secrets
from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Export, Metrics, RecordedEvent
from psflow.tasks.owners import KIND, TRAIN
from psflow.tasks.tracking.models import BestModel, RecordedModels
from psflow.tasks.tracking.points import Notes, Points, is_of_evaluation
from psflow.tasks.tracking.run import DatasetInfo, open_run
from psflow.tasks.tracking.store import mlflow_client, reason_of, retried, run_page
from psflow.tasks.tracking.writes import PendingWrites, Writes

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

Status = Literal["FINISHED", "FAILED", "KILLED"]

ENDED_FIRST = ("FAILED", "KILLED")
"""Final statuses that are written before pending events, as time may run out."""

CLOSE_SECS = 60.0
"""Timeout for the remaining writes; a later attempt does the rest."""
PATIENCE_SECS = 5.0
"""Seconds before a slow end is logged."""
MAX_POINTS_PER_CALL = 1000
MAX_POINTS_KEPT = 1_000_000
WRITE_EVERY_SECS = 1.0
MAX_BACKOFF_SECS = 30.0

_log = logging.getLogger(__name__)


class Tracker:
    """Writes the events of one job into its MLflow run, in a background thread.

    Metrics keep their names. Evaluations become the metrics ``eval/<metric>``, named ones ``eval_<name>/<metric>``,
    linked to their checkpoint: send a checkpoint before its evaluation. Checkpoints and exports become models;
    `register` makes an export a version of the registered model.

    Notes
    -----
    `handle`, `register`, `put_tags` and `put_file` never block and are thread-safe. Repeated events of a resumed job
    are written once. While MLflow is unavailable, events are buffered, and written when it is back; beyond
    `MAX_POINTS_KEPT` points, new metrics are dropped and counted; of tags and files the last is kept. Create it with
    `open`.
    """

    def __init__(
        self,
        client: MlflowClient,
        run_id: str,
        points: Points,
        models: RecordedModels,
        tags: Mapping[str, str],
        page: str | None = None,
        *,
        is_callers: bool = False,
    ) -> None:
        self.run_id = run_id
        self.tags = tags
        self.page = page
        self._client = client
        self._points = points
        self._newest_step = points.newest_step
        self._models = models
        self._notes = Notes()
        self._events: deque[RecordedEvent] = deque()
        self._to_register: deque[Export] = deque()
        self._unwritten: deque[Metric] = deque()
        self._batch_size = MAX_POINTS_PER_CALL
        self._lock = threading.Lock()  # guards the two counters that callers and the writer change
        self._num_kept = self._num_dropped = 0
        self._wake = threading.Event()
        self._ended_as: Status | None = None
        self._is_callers = is_callers
        self._deadline = Deadline(math.inf)
        self._has_ended = self._is_complete = False
        self._num_written = 0
        self._writes = Writes(self._takes_writes)
        self._thread = threading.Thread(target=self._run, name="psflow-tracker", daemon=True)
        self._thread.start()

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        experiment: str,
        run_name: str,
        run_id: str | None = None,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, str | None] | None = None,
        datasets: Iterable[DatasetInfo] = (),
        registered_model: str | None = None,
        better: Better | None = None,
        is_callers: bool = False,
    ) -> Tracker:
        """Create or resume the run of a job, and start to write.

        With `is_callers` the run `run_id` is that of a user's program, which ends it.

        Raises ConfigError if the store does not answer, or does not have the run.
        """
        from mlflow.exceptions import MlflowException

        client = mlflow_client(uri)

        def read() -> tuple[Run, RecordedModels, Points]:
            run = open_run(
                client,
                experiment=experiment,
                run_name=run_name,
                run_id=run_id,
                params=params or {},
                tags=tags or {},
                datasets=datasets,
                is_callers=is_callers,
            )
            models = RecordedModels(client, run.info.experiment_id, run.info.run_id, registered_model, better)
            models.read()
            return run, models, Points.of_run(client, run.info.run_id)

        try:
            run, models, points = retried(read)
        except (MlflowException, OSError) as error:
            where = without_secrets(uri)
            raise ConfigError((f"cannot open an MLflow run in {where}: {reason_of(error)}",)) from None
        page = run_page(uri, run.info.experiment_id, run.info.run_id)
        return cls(client, run.info.run_id, points, models, run.data.tags, page, is_callers=is_callers)

    @property
    def best(self) -> BestModel | None:
        """The last best export, once it is written."""
        return self._models.best

    def put_tags(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run; the last value of each is written. Does not block; thread-safe."""
        self._notes.put_tags(tags)

    def put_file(self, file: str, content: bytes) -> None:
        """Write an artifact, such as ``plots/roc.png``; the last one of each path. Does not block; thread-safe."""
        self._notes.put_file(file, content)

    def handle(self, event: RecordedEvent) -> None:
        """Queue an event, which is written within about a second. Does not block; thread-safe."""
        num_points = _num_points(event)
        with self._lock:
            if isinstance(event, Metrics):
                self._newest_step = max(self._newest_step, event.step)
            if num_points and self._num_kept + num_points > MAX_POINTS_KEPT:
                self._num_dropped += 1
                return
            self._num_kept += num_points
        self._events.append(event)

    def register(self, export: Export) -> None:
        """Queue an export to be registered, after all events. Does not block; thread-safe; registers it once."""
        self._to_register.append(export)

    def take_back(self, waiting: PendingWrites) -> None:
        """Queue pending writes of an earlier attempt. Does not block."""
        self.tags = {**self.tags, **waiting.tags}
        self.put_tags(waiting.tags)
        for file, content in waiting.files.items():
            self.put_file(file, content)
        for metrics in waiting.metrics:
            self.handle(metrics)

    def waiting(self) -> PendingWrites:
        """Return pending writes that are stored nowhere else, for `take_back` in the next attempt. Repeatable."""
        points = [point for point in self._unwritten.copy() if not is_of_evaluation(point.key)]
        taken = [Metrics(point.step, {point.key: point.value}, time=point.timestamp / 1000) for point in points]
        metrics = taken + [event for event in self._events.copy() if isinstance(event, Metrics)]
        return PendingWrites(metrics, *self._notes.waiting())

    @property
    def newest_step(self) -> int:
        """Newest training step of the points of the run, and of all metrics since; -1 without one."""
        return self._newest_step

    @property
    def num_lost(self) -> int:
        """Number of events or points that were dropped or, after `close`, are still pending."""
        return self._num_dropped + self._num_pending

    def history(self, key: str) -> list[tuple[int, float]]:
        """Return the points of a metric in the run, as (step, value). Blocks for one or more requests."""
        return [(m.step, m.value) for m in self._client.get_metric_history(self.run_id, key)]

    def statistics(self) -> dict[str, Any]:
        """Return the numbers of pending, written and dropped events or points, and the last failure."""
        return {
            "pending": self._num_pending,
            "written": self._num_written,
            "dropped": self._num_dropped,
            "failures": self._writes.num_failures,
            "last_error": self._writes.last_error,
        }

    def close(self, status: Status = "FINISHED", timeout_secs: float = CLOSE_SECS) -> bool:
        """Write pending events and end the run, within `timeout_secs`; return `is_whole`."""
        if self._ended_as is None:
            self._deadline = Deadline(stop_clock.limited(timeout_secs))
            self._ended_as = status
            self._wake.set()
        self._thread.join(min(PATIENCE_SECS, self._deadline.remaining_secs))
        if self._thread.is_alive() and not self._deadline.has_passed:
            _log.warning(
                "MLflow run %s: %s, retrying for up to %.0f s; %s",
                self.run_id,
                self._lacks(),
                self._deadline.remaining_secs,
                self._writes.trouble(),
            )
            self._thread.join(self._deadline.remaining_secs)
        if not self.is_whole:
            _log.warning("MLflow run %s is incomplete: %s; %s", self.run_id, self._lacks(), self._writes.trouble())
        return self.is_whole

    def _lacks(self) -> str:
        """Return a clause about what the run lacks."""
        counts = {"not written": self._num_pending, "dropped": self._num_dropped}
        return " and ".join(f"{n} events were {how}" for how, n in counts.items() if n) or "its end was not written"

    @property
    def is_whole(self) -> bool:
        """Whether the run has ended with all its events."""
        return self._is_complete and not self._num_dropped

    @property
    def _num_pending(self) -> int:
        return len(self._events) + len(self._unwritten) + len(self._to_register) + len(self._notes)

    def _run(self) -> None:
        delay = WRITE_EVERY_SECS
        while not self._is_complete and not self._deadline.has_passed:
            if self._wake.wait(delay):
                self._wake.clear()  # closing: waiting now only paces the retries
                delay = WRITE_EVERY_SECS
            closing = self._ended_as
            if closing in ENDED_FIRST:
                self._end()
            if not self._write_all():
                delay = WRITE_EVERY_SECS if closing else min(2 * delay, MAX_BACKOFF_SECS)
            elif closing is None:
                delay = WRITE_EVERY_SECS
            else:
                self._is_complete = self._end()

    def _end(self) -> bool:
        """End the run unless it has ended; return whether it has."""
        self._has_ended = self._has_ended or self._writes.attempt(self._end_run, lambda error: False)
        return self._has_ended

    def _write_all(self) -> bool:
        """Write events in order, metrics in batches. Stop at the first failure or at the timeout."""
        while self._num_pending:
            if self._deadline.has_passed or (self._ended_as in ENDED_FIRST and not self._has_ended):
                return False
            self._take_points()
            if self._unwritten:
                if not self._writes.attempt(self._write_points, self._narrow_batch):
                    return False
            elif queue := self._models_queue():
                if not self._writes.attempt(partial(self._write_model, queue), partial(self._drop_model, queue)):
                    return False
            elif self._notes and not self._writes.attempt(self._write_note, self._drop_note):
                return False
        return True

    def _take_points(self) -> None:
        """Turn events into points, up to the next model or a full batch."""
        while self._events and len(self._unwritten) < MAX_POINTS_PER_CALL:
            event = self._events[0]
            match event:
                case Metrics():
                    self._unwritten.extend(self._points.of_metrics(event))
                case Evaluation():
                    model_id = self._models.checkpoint_id(event.step)
                    self._unwritten.extend(self._points.of_evaluation(event, model_id))
                case Checkpoint() | Export():
                    return
                case _:
                    assert_never(event)
            self._num_written += 1
            self._release(self._events.popleft())

    def _models_queue(self) -> deque[RecordedEvent] | deque[Export]:
        """Return the queue whose first event is the next model, or an empty one."""
        is_next = self._events and isinstance(self._events[0], Checkpoint | Export)  # metrics may come at any time
        return self._events if is_next else self._to_register

    def _write_points(self) -> None:
        batch = list(islice(self._unwritten, self._batch_size))
        self._client.log_batch(self.run_id, metrics=batch, synchronous=True)
        for _ in batch:
            self._unwritten.popleft()
        self._batch_size = min(2 * self._batch_size, MAX_POINTS_PER_CALL)

    def _end_run(self) -> None:
        if not self._is_callers:
            self._client.set_terminated(self.run_id, self._ended_as)

    def _write_model(self, queue: deque[RecordedEvent] | deque[Export]) -> None:
        event = queue[0]
        try:
            if isinstance(event, Export):
                record = self._models.register_export if queue is self._to_register else self._models.record_export
                record(event)
            else:
                assert isinstance(event, Checkpoint)  # _models_queue gives no other
                self._models.record_checkpoint(event)
            self._num_written += 1
        except (KeyError, TypeError, ValueError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and isinstance(event, Export) and _was_replaced(event):
                _log.info("%s was removed, as newer exports replace it, before MLflow had it", event.path)
            else:
                self._drop(event, error)
        queue.popleft()

    def _write_note(self) -> None:
        self._notes.write_one(self._client, self.run_id)

    def _takes_writes(self) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            # a write, as a store may answer only reads; of a tag that every owner of the run sets
            self._client.set_tag(self.run_id, KIND, self.tags.get(KIND, TRAIN))
        except (MlflowException, OSError):
            return False
        return True

    def _narrow_batch(self, error: Exception) -> bool:
        """Halve a refused batch down to the single faulty point; drop that point."""
        size = min(self._batch_size, len(self._unwritten))
        if size > 1:
            self._batch_size = size // 2
        else:
            self._drop(self._unwritten.popleft(), error)
        return True

    def _drop_model(self, queue: deque[RecordedEvent] | deque[Export], error: Exception) -> bool:
        self._drop(queue.popleft(), error)
        return True

    def _drop_note(self, error: Exception) -> bool:
        self._drop(self._notes.drop_one(), error)
        return True

    def _release(self, event: RecordedEvent) -> None:
        with self._lock:
            self._num_kept -= _num_points(event)

    def _drop(self, what: object, error: Exception) -> None:
        with self._lock:
            self._num_dropped += 1
        _log.warning(
            "not written to MLflow: %s (%s: %s)", without_secrets(str(what)), type(error).__name__, reason_of(error)
        )


def _was_replaced(export: Export) -> bool:
    """Return whether the exporter has removed an export and keeps a later one, as ``exports_to_keep`` says."""
    kept = ExportDirectory(export.path.rpartition("/")[0]).versions()
    return not is_exported(export.path) and max(kept, default=0) > export.version


def _num_points(event: RecordedEvent) -> int:
    """Return the number of points of an event of training metrics; other events are rare and not limited."""
    return len(event.values) if isinstance(event, Metrics) else 0
