"""Defines the Dask worker inside a manually started process of a role."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.cluster.closed_nodes import ClosedScheduler, ClosedWorker
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.roles.event_codec import decode_event
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.roles.trainer import TrainingLoop, train

CHIEF, EVALUATOR = "chief-0", "evaluator-0"
FINISHED = "psflow-finished"
FAILED = "psflow-failed: "
REMOVED = frozenset({"scheduler-remove-worker", "worker-heartbeat-missing"})
"""Dask's reasons for closing a worker that its scheduler has removed as silent: either may come first."""
TOPICS = "psflow-"
"""Prefix of the topics of the events of roles."""
REFUSAL_SECS = 10.0
"""For another process of the same role to join, which may have been started twice."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JoinRefusal:
    """Why a process does not join."""

    faults: tuple[str, ...]
    deadline: Deadline


class ChiefScheduler(ClosedScheduler):
    """The scheduler in the chief process: describes its job to joining processes, and reports its end."""

    def __init__(self, *, description: dict[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self._description = description
        self._reason = ""
        self.refusals: dict[str, JoinRefusal] = {}
        self.ended: set[str] = set()
        """Names of the processes that know how the job has ended."""
        self.handlers |= {"describe_cluster": self.describe_cluster, "note_refusal": self.note_refusal}

    def describe_cluster(self) -> dict[str, Any]:
        """Return the description."""
        return self._description

    def note_refusal(self, name: str, faults: Sequence[str]) -> None:
        """Record why the process `name` does not join."""
        logger.warning("%s does not join: %s", name, "; ".join(faults))
        self.refusals[name] = JoinRefusal(tuple(faults), Deadline(REFUSAL_SECS))

    def note_end(self, failure: str | None) -> None:
        """Record how the job has ended: its failure, or None; only the first end counts."""
        self._reason = self._reason or (FINISHED if failure is None else FAILED + failure)

    def end_joined(self) -> None:
        """Close the other processes that have joined, which learn how the job has ended."""
        for address, comm in self.stream_comms.items():
            name = str(self.workers[address].name)
            if name not in (CHIEF, *self.ended) and comm.comm is not None and not comm.closed():
                comm.send({"op": "close", "reason": self._reason})
                self.ended.add(name)

    async def close(self, timeout: float | None = None, reason: str = "unknown") -> None:
        """Close, and with it all workers, which learn how the job has ended."""
        for comm in self.stream_comms.values():
            if not comm.closed():
                comm.send({"op": "close", "reason": self._reason})
        await super().close(timeout=timeout, reason=reason)


class RoleWorker(ClosedWorker):
    """A Dask worker for the roles of one process."""

    def __init__(
        self,
        scheduler: str,
        *,
        on_event: Callable[[Event], None],
        input_fn: Callable[..., Any] | None = None,
        training_loop: TrainingLoop = train,
        **options: Any,
    ) -> None:
        super().__init__(scheduler, **options)
        self.input_fn = input_fn
        self.training_loop = training_loop
        self._on_event = on_event
        self._end: str | None = None

    @property
    def has_finished(self) -> bool:
        """Whether the chief has reported that the job is finished."""
        return self._end == FINISHED

    @property
    def failure(self) -> str | None:
        """The failure of the job, if the chief has reported one."""
        return self._end.removeprefix(FAILED) if self._end is not None and self._end.startswith(FAILED) else None

    @property
    def is_given_up(self) -> bool:
        """Whether the chief has removed this process, as it was silent."""
        return self._end in REMOVED

    def log_event(self, topic: str | Collection[str], msg: Any) -> None:
        """Send an event to the chief; an event of a role is handled in this process, too."""
        super().log_event(topic, msg)
        if isinstance(topic, str) and topic.startswith(TOPICS):
            self._on_event(decode_event(msg))

    async def close(  # type: ignore[override]  # as Worker's
        self, timeout: float = 30, executor_wait: bool = True, nanny: bool = True, reason: str = "worker-close"
    ) -> str | None:
        """Close; only the first reason counts."""
        if self._end is None:
            self._end = reason
        return await super().close(timeout=timeout, executor_wait=executor_wait, nanny=nanny, reason=reason)
