"""Runs evaluations of checkpoints on a Dask cluster, and records their results."""

from __future__ import annotations

import errno
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from types import TracebackType
from typing import Any, Self

from distributed import Client, Future
from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Failed

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.records import EVALUATIONS, EvaluationLog, EvaluationRecord
from psflow.ps_runtime.cluster.fetching import fetched
from psflow.ps_runtime.cluster.scheduler_rpc import put
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.cluster.topics import subscribe, unsubscribe
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StorageError, UsageError, WaitTimeoutError
from psflow.ps_runtime.shipping.pickles import pickled
from psflow.tasks.completed_futures import completed_batches
from psflow.tasks.evaluation.worker import EvaluationJob, Failure, Outcome, evaluate_checkpoint, forget

logger = logging.getLogger(__name__)

READ_ONLY = {errno.EACCES, errno.EPERM, errno.EROFS}


class ReplayRecord:
    """Evaluations of a model_dir, on disk if the directory is writable."""

    def __init__(self, model_dir: str, directory: str | None = None) -> None:
        self._model_dir = model_dir
        self.directory = directory or model_dir
        self.is_written = True
        self._log = EvaluationLog(self.directory)
        logs = [EvaluationLog(model_dir), *([self._log] if directory is not None else [])]
        self._known = {(e.name, e.global_step): e for log in logs for e in log.read()}

    @property
    def path(self) -> str:
        """Path of the record."""
        return f"{self.directory.rstrip('/')}/{EVALUATIONS}"

    def find(self, name: str, step: int, saved_at: float) -> EvaluationRecord | None:
        """Return the evaluation `name` of a checkpoint; None if it is not recorded."""
        found = self._known.get((name, step))
        return found if found is not None and found.checkpoint_saved_at == saved_at else None

    def check_input(self, name: str, digest: str, key: str) -> None:
        """Refuse an input that differs from that of the recorded evaluations `name`.

        Raises UsageError if evaluations of that name on another input are recorded.
        """
        others = sorted(
            e.global_step
            for e in self._known.values()
            if e.name == name and digest and e.input_digest not in ("", digest)
        )
        if others:
            raise UsageError(
                (
                    f"evaluation {name or 'eval'!r} has different data, batch size or eval.steps than its recorded "
                    f"results (checkpoints {_shown(others)}); rename it ({key}), or repeat all of them (--force)",
                )
            )

    def write(self, evaluation: EvaluationRecord, *, is_forced: bool) -> None:
        """Record `evaluation` durably; log a warning if the directory is not writable."""
        self._known[evaluation.name, evaluation.global_step] = evaluation
        if not self.is_written:
            return
        try:
            if self.directory != self._model_dir:
                FileStore(self.directory).create()
            if is_forced:
                self._log.append(evaluation)
            else:
                self._log.add(evaluation)
        except (OSError, StorageError) as error:
            cause = error.__cause__ if isinstance(error, StorageError) else error
            if not isinstance(cause, OSError) or cause.errno not in READ_ONLY:
                raise
            self.is_written = False
            logger.warning(
                "%s is not writable, so results are stored in MLflow only, and the next evaluation repeats them; "
                "use --record DIR to keep the record elsewhere",
                self.directory,
            )


def _shown(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")


TASKS_PER_THREAD = 4
"""Checkpoints per thread from which one Dask task runs all evaluations of a checkpoint, to read it once."""
FORGET_SECS = 5.0
"""Timeout of the request to workers to release the job; a stopped scheduler does not forward it."""


class Replay:
    """Evaluations of one job during a ``with`` block; none outlives it."""

    def __init__(self, client: Client, job: EvaluationJob, wanted: Mapping[int, Sequence[int]]) -> None:
        self._client, self._slots = client, Slots(client)
        self._job = job
        # opaque bytes: the scheduler does not unpickle them, and pickling happens once
        self._pickled = pickled(job, "the evaluation")
        self._name = f"psflow-replay-{secrets.token_hex(8)}"
        self._wanted = {step: tuple(indexes) for step, indexes in wanted.items() if indexes}
        self._left = {step: len(indexes) for step, indexes in self._wanted.items()}
        self._failures: dict[int, list[Failure]] = {}
        self._changed = threading.Condition()
        self._has_begun = threading.Event()
        self._futures: dict[Future[Any], tuple[int, tuple[int, ...]]] = {}

    def __enter__(self) -> Self:
        subscribe(self._client, self._name, self._note_begin)
        for step, indexes in self._tasks():
            future = self._client.submit(
                evaluate_checkpoint, self._pickled, self._name, step, indexes, key=f"{self._name}-{step}-{indexes}"
            )
            self._futures[future] = (step, indexes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._client.cancel(list(self._futures), force=True)
        finally:  # the user may interrupt the wait
            unsubscribe(self._client, self._name, self._note_begin)
            asked = put(self._client, lambda scheduler: self._client.run(forget, self._name, wait=False))
            wait([asked], FORGET_SECS)

    def _note_begin(self, stamped: tuple[float, Any]) -> None:
        self._has_begun.set()

    def outcomes(self, timeout_secs: float, check: Callable[[], None]) -> Iterator[Outcome]:
        """Yield the outcome of each evaluation at its end. Blocks between them.

        Raises WaitTimeoutError if no evaluation starts in time, the cluster has had no worker for half a minute, or its
        scheduler is silent for minutes.
        """
        deadline = Deadline(timeout_secs)
        for batch in completed_batches(self._client, self._futures):
            if not batch and not self._has_begun.is_set() and deadline.has_passed:
                raise WaitTimeoutError("the Dask cluster", "have a free thread", timeout_secs)
            for future in batch:
                for outcome in self._outcomes_of(future):
                    yield outcome
                    self._take(outcome)
            if any(self._left.values()):
                check()

    def wait(self, steps: Sequence[int], timeout_secs: float) -> Sequence[Failure] | None:
        """Wait until all of `steps` are evaluated and their outcomes taken; return the failures, None after a timeout.

        Thread-safe, also while another thread iterates over `outcomes`.
        """

        def is_done() -> bool:
            return not any(self._left[step] for step in steps)

        with self._changed:
            if not self._changed.wait_for(is_done, timeout_secs):
                return None
            return [failure for step in steps for failure in self._failures.get(step, ())]

    def _tasks(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        num_threads = self._slots.count()
        whole = len(self._wanted) >= TASKS_PER_THREAD * num_threads
        for step, indexes in self._wanted.items():
            yield from [(step, indexes)] if whole else [(step, (index,)) for index in indexes]

    def _outcomes_of(self, future: Future[Any]) -> Sequence[Outcome]:
        step, indexes = self._futures[future]
        result = fetched(self._slots, future)
        try:
            outcomes: Sequence[Outcome] = result.result()
        except CancelledError:
            reason = "its Dask task was cancelled"
        except Exception as error:  # such as KilledWorker
            reason = f"{type(error).__name__}: {error}"
        else:
            return outcomes
        return [Failure(self._job.eval_specs[index].name or "", step, reason) for index in indexes]

    def _take(self, outcome: Outcome) -> None:
        with self._changed:
            self._left[outcome.global_step] -= 1
            if isinstance(outcome, Failure):
                self._failures.setdefault(outcome.global_step, []).append(outcome)
            self._changed.notify_all()


SLICE_SECS = 0.5
MAX_TASK_RUNS = 50
"""Number of checkpoints above which a task run represents several of them."""


def in_task_runs(steps: Sequence[int]) -> list[list[int]]:
    """Group `steps` by task run.

    Examples
    --------
    >>> in_task_runs([300, 600])
    [[300], [600]]
    >>> [len(group) for group in in_task_runs(range(101))][:2]
    [3, 3]
    """
    size = -(-len(steps) // MAX_TASK_RUNS)
    return [list(steps[start : start + size]) for start in range(0, len(steps), size)] if steps else []


@task(name="evaluate", task_run_name="evaluate {label}", cache_policy=NO_CACHE, persist_result=False)
def evaluate_steps(label: str, steps: Sequence[int], replay: Replay, stop: threading.Event) -> int | State[int]:
    """Wait in slices until `steps` are evaluated; return their number, or a Failed or Cancelled state."""
    while (failures := replay.wait(steps, 0.0 if stop.is_set() else SLICE_SECS)) is None:
        if stop.is_set():
            return Cancelled(message="interrupted; run the same command again to do the rest")
    if failures:
        return Failed(message="; ".join(f"step {f.global_step}: {f.reason}" for f in failures))
    return len(steps)
