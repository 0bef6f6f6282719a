"""Decides which replicas take too long for a step, without a clock: callers pass seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from psflow.ps_runtime.server.instructions import CHIEF, Expired
from psflow.ps_runtime.server.replicas import Replica
from psflow.ps_runtime.server.updates import BatchTicket
from psflow.ps_runtime.specs.consistency import StepDeadline
from psflow.ps_runtime.specs.input import RecordRange

WEIGHT = 1 / 16
"""Weight of the last step in the usual duration."""


class _Batch(NamedTuple):
    """The records of a ticket, with their queue."""

    queue: int
    records: RecordRange


class Deadlines:
    """Decides when the replicas that wait for a step go on without it."""

    def __init__(self, spec: StepDeadline, *, own_queues: bool) -> None:
        self._spec = spec
        self._own_queues = own_queues
        self._usual_secs: dict[int, float] = {}
        """Of a step, by replica: a moving mean without the first step of each incarnation, which is longer."""
        self._num_expired = Counter[int | _Batch]()
        """Incarnations that a deadline has ended, by replica, and by the batch of their step."""

    def pushed(self, state: Replica, ticket: BatchTicket) -> None:
        """Record that a replica has made the step of a ticket; `incarnation` does not count the push yet."""
        if state.sequence:
            usual_secs = self._usual_secs.setdefault(ticket.replica, state.step_secs)
            self._usual_secs[ticket.replica] += WEIGHT * (state.step_secs - usual_secs)
        state.step_secs = 0.0
        if self._num_expired:
            self._num_expired.pop(self._batch(ticket), None)

    def tick(
        self,
        secs: float,
        living: Mapping[int, Replica],
        waiting: Collection[int],
        fetching: Collection[int],
        *,
        gains: bool = True,
    ) -> list[Expired]:
        """Record that time has passed; return the incarnations that are over because others wait for them."""
        expired = []
        for replica, state in living.items():
            if not state.tickets or replica == CHIEF or replica in fetching or replica in waiting:
                continue  # a waiting replica may hold a further ticket
            state.step_secs += secs
            batch = self._batch(state.tickets[0])
            allowed_secs = self._allowed_secs(replica, state, batch)
            if state.step_secs >= allowed_secs and waiting and gains:
                self._num_expired[replica] += 1
                self._num_expired[batch] += 1
                num_incarnations = self._num_expired[batch]
                expired.append(Expired(replica, state.incarnation, batch.records, allowed_secs, num_incarnations))
        return expired

    def _allowed_secs(self, replica: int, state: Replica, batch: _Batch) -> float:
        usual_secs = self._usual_secs.get(replica)
        if not state.sequence or usual_secs is None:
            allowed_secs = self._spec.max_secs
        else:
            allowed_secs = self._spec.secs(usual_secs, self._num_expired[replica])
        return float(allowed_secs * 2 ** self._num_expired[batch])

    def _batch(self, ticket: BatchTicket) -> _Batch:
        return _Batch(ticket.replica if self._own_queues else CHIEF, ticket.records)
