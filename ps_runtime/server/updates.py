"""From tickets to updates: what is given, what is taken in, what was decided, and who has heard of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.protocol.decisions import Decision, Entry, EntryLog
from psflow.ps_runtime.protocol.message import Life
from psflow.ps_runtime.server.consistency import Ticket, consistency_state
from psflow.ps_runtime.server.instructions import Decided
from psflow.ps_runtime.specs.consistency import Consistency
from psflow.ps_runtime.specs.input import RecordRange

__all__ = ["BatchTicket", "Updates"]


@dataclass(slots=True, eq=False)
class BatchTicket(Ticket):
    """A ticket and its batch; with a void one, a gradient comes too late."""

    records: RecordRange
    is_void: bool = False


class Updates:
    """The updates of a job, and the tickets and pushes on their way to become some."""

    def __init__(self, consistency: Consistency, num_replicas: int, num_shards: int) -> None:
        self.global_step = 0
        self.tickets: set[BatchTicket] = set()
        """Those given, not used and not void."""
        self.log = EntryLog()
        self.staleness: dict[int, int] = {}
        """Of the last push of each replica that became an update."""
        self._has_other_shards = num_shards > 1
        self._rule = consistency_state(consistency, num_replicas)
        self._pulled: dict[Life, int] = {}
        self._dropped: list[Entry] = []
        self._num_pushes = self._num_dropped = self._staleness_sum = self._max_staleness = 0

    def has_room(self, replica: int, end: float) -> bool:
        """Return whether `replica` may have one more ticket, where no update may come after step `end`."""
        return self._rule.has_room(replica, end - self.global_step, self.tickets)

    def give(self, ticket: BatchTicket) -> None:
        """Take note that a ticket is given."""
        self.tickets.add(ticket)
        self._rule.granted(ticket.replica)

    def unused(self, ticket: BatchTicket) -> None:
        """Take note that a ticket will not be used."""
        if not ticket.is_void:
            self.tickets.remove(ticket)
            self._rule.returned(ticket.replica)

    def take(self, ticket: BatchTicket, incarnation: int, sequence: int, version: int) -> None:
        """Take in the push that uses a ticket; `version` is what it was computed on. A void ticket drops it."""
        replica = ticket.replica
        if ticket.is_void:
            self._dropped.append(Entry(Decision.DROP, replica, incarnation, sequence))
            return
        self.tickets.remove(ticket)
        pulled = max(ticket.step, min(version, self.global_step))
        self._pulled[replica, incarnation] = pulled
        self._rule.take(replica, incarnation, sequence, pulled)

    def holds_push_of(self, replica: int) -> bool:
        """Return whether a push of `replica` waits for those of others."""
        return self._rule.holds_push_of(replica)

    def living(self, num_living: int) -> None:
        """Take note of how many replicas are alive, those included that have not come yet."""
        self._rule.lives(num_living)

    def settle(self) -> tuple[list[Decided], list[BatchTicket]]:
        """Decide what is due now."""
        dropped, self._dropped = self._dropped, []
        return self._decide([*dropped, *self._rule.settle(self.global_step, self.tickets)])

    def close(self) -> tuple[list[Decided], list[BatchTicket]]:
        """Decide on what is in hand although nothing more will come; as `settle`."""
        return self._decide(self._rule.close())

    def statistics(self) -> dict[str, Any]:
        """Return counters, as plain data."""
        return {
            "pushes": self._num_pushes,
            "dropped_pushes": self._num_dropped,
            "mean_staleness": round(self._staleness_sum / max(1, self._num_pushes), 4),
            "max_staleness": self._max_staleness,
        }

    def _decide(self, entries: Sequence[Entry]) -> tuple[list[Decided], list[BatchTicket]]:
        if not entries:
            return [], []
        void: list[BatchTicket] = []
        for entry in entries:
            if entry.decision is Decision.DROP:
                self._num_dropped += 1
            elif entry.decision is not Decision.CLOSE:
                self._count(entry)
            if entry.makes_update:
                self.global_step += 1
                void += self._void() if self._rule.voids_tickets else []
        start = self.log.end
        if self._has_other_shards:
            self.log.extend(entries)
        else:
            self.log.start += len(entries)  # nobody else has to hear of them
        return [Decided(start, entries)], void

    def _count(self, entry: Entry) -> None:
        staleness = self.global_step - self._pulled.pop((entry.replica, entry.incarnation))
        self.staleness[entry.replica] = staleness
        self._num_pushes += 1
        self._staleness_sum += staleness
        self._max_staleness = max(self._max_staleness, staleness)

    def _void(self) -> list[BatchTicket]:
        void = list(self.tickets)
        for ticket in void:
            ticket.is_void = True
        self.tickets.clear()
        return void
