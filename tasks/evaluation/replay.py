"""Evaluations of checkpoints on a Dask cluster, as their owner sees them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from types import TracebackType
from typing import Any, Self

from distributed import Client, Future

from psflow.ps_runtime.cluster.asking import put
from psflow.ps_runtime.cluster.fetching import fetched
from psflow.ps_runtime.cluster.slots import Slots
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.shipping.pickles import pickled
from psflow.tasks.completed import completed_batches
from psflow.tasks.evaluation.worker import EvaluationJob, Failure, Outcome, evaluate_checkpoint, forget

__all__ = ["Replay"]

TASKS_PER_THREAD = 4
"""From so many checkpoints for each thread on, a Dask task evaluates all of one, which is then read once."""
FORGET_SECS = 5.0
"""For the workers to be told to forget the job; a scheduler that is stopped does not tell them."""


class Replay:
    """The evaluations of one job, for the time of a ``with`` block: whatever happens, none outlives it."""

    def __init__(self, client: Client, job: EvaluationJob, wanted: Mapping[int, Sequence[int]]) -> None:
        self._client, self._slots = client, Slots(client)
        self._job = job
        # opaque bytes: the scheduler opens none, and pickling is done once
        self._pickled = pickled(job, "the evaluation")
        self._name = f"psflow-replay-{secrets.token_hex(8)}"
        self._wanted = {step: tuple(indexes) for step, indexes in wanted.items() if indexes}
        self._left = {step: len(indexes) for step, indexes in self._wanted.items()}
        self._failures: dict[int, list[Failure]] = {}
        self._changed = threading.Condition()
        self._has_begun = threading.Event()
        self._futures: dict[Future[Any], tuple[int, tuple[int, ...]]] = {}

    def __enter__(self) -> Self:
        self._client.subscribe_topic(self._name, lambda event: self._has_begun.set())
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
        finally:  # somebody may not want to wait
            self._client.unsubscribe_topic(self._name)
            asked = put(self._client, lambda scheduler: self._client.run(forget, self._name, wait=False))
            wait([asked], FORGET_SECS)

    def outcomes(self, timeout_secs: float, check: Callable[[], None]) -> Iterator[Outcome]:
        """Yield what comes of each evaluation, as they end. Blocks between them.

        Raises
        ------
        WaitTimeoutError
            If no evaluation has begun by then, the cluster has had no worker for half a minute, or its scheduler is
            silent for minutes.
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
        """Wait until all of `steps` are evaluated, and what came of it is taken; return the failures, None if not yet.

        May be called from any thread, while another goes through `outcomes`.
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
