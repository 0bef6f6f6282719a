"""Turns tickets into updates: which are given, which pushes are accepted, decided, and announced.

Plain decisions without clocks or sockets. The job calls `has_room` before it gives a ticket, passes each push to
`take`, and asks after every event what is due now with `settle`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never

from psflow.ps_runtime.protocol.job_state import Decision, Entry, EntryLog
from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.server.instructions import Decided
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Consistency, Hogwild, Sync
from psflow.ps_runtime.specs.input import RecordRange


@dataclass(slots=True, eq=False)
class Ticket:
    """The permission for one push of `replica`, given at global_step `step`."""

    replica: int
    step: int


class Taken(NamedTuple):
    """An accepted push; `entry` says how, `version` what it was computed on."""

    entry: Entry
    version: int


class ConsistencyState(ABC):
    """The rule by which pushes become updates, and its pending pushes."""

    voids_tickets = False
    """Whether an update voids the tickets given before it."""

    @abstractmethod
    def has_room(self, replica: int, steps_left: float, tickets: Collection[Ticket]) -> bool:
        """Return whether `replica` may have one more ticket."""

    @abstractmethod
    def take(self, replica: int, incarnation: int, sequence: int, version: int) -> None:
        """Accept a push; its ticket is used up already."""

    @abstractmethod
    def settle(self, global_step: int, tickets: Collection[Ticket]) -> list[Entry]:
        """Return the decisions that are due now, each one once."""

    def holds_push_of(self, replica: int) -> bool:
        """Return whether a push of `replica` waits, and `replica` with it."""
        return False

    def close(self) -> list[Entry]:
        """Decide on pending pushes although no more come: all tickets are used, and no more are given."""
        return []

    def granted(self, replica: int) -> None:  # noqa: B027  (most rules need not know)
        """Record that a ticket was given."""

    def returned(self, replica: int) -> None:  # noqa: B027  (most rules need not know)
        """Record that a ticket was returned unused."""

    def set_num_living(self, num_living: int) -> None:  # noqa: B027  (most rules need not know)
        """Record how many replicas are alive, including those that have not joined yet."""


class AsyncState(ConsistencyState):
    """Every push is an update at once."""

    def __init__(self) -> None:
        self._new: list[Entry] = []

    def has_room(self, replica: int, steps_left: float, tickets: Collection[Ticket]) -> bool:  # noqa: D102
        return steps_left > len(tickets)

    def take(self, replica: int, incarnation: int, sequence: int, version: int) -> None:  # noqa: D102
        self._new.append(Entry(Decision.APPLY, replica, incarnation, sequence))

    def settle(self, global_step: int, tickets: Collection[Ticket]) -> list[Entry]:  # noqa: D102
        new, self._new = self._new, []
        return new


class BoundedStalenessState(ConsistencyState):
    """Every push is an update, at most `max_staleness` updates after its pull.

    A ticket given at step `s`, or a push pulled at version `s`, must become an update while the step is at most
    ``s + max_staleness``. Sorted by that, the `i`-th of them (from 0) can still do so as long as
    ``step + i <= s_i + max_staleness``. A push that would break this for another one waits; the first one never does.
    So the bound holds without dropping anything, and nothing waits for ever.
    """

    def __init__(self, max_staleness: int) -> None:
        self.max_staleness = max_staleness
        self._held: list[Taken] = []

    def has_room(self, replica: int, steps_left: float, tickets: Collection[Ticket]) -> bool:  # noqa: D102
        num_due = len(tickets) + len(self._held)
        return steps_left > num_due and num_due <= self.max_staleness

    def take(self, replica: int, incarnation: int, sequence: int, version: int) -> None:  # noqa: D102
        self._held.append(Taken(Entry(Decision.APPLY, replica, incarnation, sequence), version))

    def settle(self, global_step: int, tickets: Collection[Ticket]) -> list[Entry]:  # noqa: D102
        entries: list[Entry] = []
        while (ready := self._ready(global_step, tickets)) is not None:
            self._held.remove(ready)
            entries.append(ready.entry)
            global_step += 1
        return entries

    def holds_push_of(self, replica: int) -> bool:  # noqa: D102
        return any(taken.entry.replica == replica for taken in self._held)

    def _ready(self, global_step: int, tickets: Collection[Ticket]) -> Taken | None:
        """Return the first held push after which all others are still in time, if there is one."""
        for taken in self._held:
            others = [held.version for held in self._held if held is not taken]
            due = sorted([*(ticket.step for ticket in tickets), *others])
            if all(global_step + 1 + i <= since + self.max_staleness for i, since in enumerate(due)):
                return taken
        return None


class SyncState(ConsistencyState):
    """Gradients of one step are averaged; later ones of that step are dropped."""

    voids_tickets = True

    def __init__(self, replicas_to_aggregate: int, num_replicas: int) -> None:
        self._wanted = replicas_to_aggregate
        self._quota = math.ceil(replicas_to_aggregate / num_replicas)
        self._num_living = num_replicas
        self._new: list[Entry] = []
        self._num_summed = 0
        self._shares: Counter[int] = Counter()
        """Tickets and gradients of each replica in this round."""

    @property
    def num_wanted(self) -> int:
        """How many gradients make an update now: at most as many as the living replicas can give."""
        return max(1, min(self._wanted, self._quota * self._num_living))

    def has_room(self, replica: int, steps_left: float, tickets: Collection[Ticket]) -> bool:  # noqa: D102
        is_needed = self._shares[replica] == 0 or self._num_summed + len(tickets) < self.num_wanted
        return steps_left > 0 and self._shares[replica] < self._quota and is_needed

    def granted(self, replica: int) -> None:  # noqa: D102
        self._shares[replica] += 1

    def returned(self, replica: int) -> None:  # noqa: D102
        self._shares[replica] -= 1

    def set_num_living(self, num_living: int) -> None:  # noqa: D102
        self._num_living = num_living

    def take(self, replica: int, incarnation: int, sequence: int, version: int) -> None:  # noqa: D102
        self._new.append(Entry(Decision.SUM, replica, incarnation, sequence))
        self._num_summed += 1

    def settle(self, global_step: int, tickets: Collection[Ticket]) -> list[Entry]:  # noqa: D102
        new, self._new = self._new, []
        return [*new, *self.close()] if self._num_summed >= self.num_wanted else new

    def close(self) -> list[Entry]:  # noqa: D102
        if not self._num_summed:
            return []
        closed = Entry.close(self._num_summed)
        self._num_summed = 0
        self._shares.clear()
        return [closed]


def consistency_state(consistency: Consistency, num_replicas: int) -> ConsistencyState:
    """Return the rule that `consistency` describes, for this number of training replicas."""
    match consistency:
        case Sync():
            return SyncState(consistency.gradients_per_update(num_replicas), num_replicas)
        case BoundedStaleness(max_staleness):
            return BoundedStalenessState(max_staleness)
        case Async() | Hogwild():
            return AsyncState()
        case unknown:
            assert_never(unknown)


@dataclass(slots=True, eq=False)
class BatchTicket(Ticket):
    """A ticket and its batch; a gradient computed with a void ticket is too late."""

    records: RecordRange
    is_void: bool = False


class Updates:
    """The updates of a job, and the pending tickets and pushes."""

    def __init__(self, consistency: Consistency, num_replicas: int, num_shards: int) -> None:
        self.global_step = 0
        self.tickets: set[BatchTicket] = set()
        """Tickets that are given, not used and not void."""
        self.log = EntryLog()
        self.staleness: dict[int, int] = {}
        """Of the last push of each replica that became an update."""
        self._has_other_shards = num_shards > 1
        self._rule = consistency_state(consistency, num_replicas)
        self.holds_push_of: Callable[[int], bool] = self._rule.holds_push_of
        """Returns whether a push of a replica waits for those of others."""
        self._pulled: dict[Incarnation, int] = {}
        self._dropped: list[Entry] = []
        self._num_pushes = self._num_dropped = self._staleness_sum = self._max_staleness = 0

    def has_room(self, replica: int, end: float) -> bool:
        """Return whether `replica` may have one more ticket, where no update may come after step `end`."""
        return self._rule.has_room(replica, end - self.global_step, self.tickets)

    def give(self, ticket: BatchTicket) -> None:
        """Record that a ticket is given."""
        self.tickets.add(ticket)
        self._rule.granted(ticket.replica)

    def unused(self, ticket: BatchTicket) -> None:
        """Record that a ticket will not be used."""
        if not ticket.is_void:
            self.tickets.remove(ticket)
            self._rule.returned(ticket.replica)

    def take(self, ticket: BatchTicket, incarnation: int, sequence: int, version: int) -> None:
        """Accept the push that uses a ticket; `version` is the one it was computed on. A void ticket drops it."""
        replica = ticket.replica
        if ticket.is_void:
            self._dropped.append(Entry(Decision.DROP, replica, incarnation, sequence))
            return
        self.tickets.remove(ticket)
        pulled = max(ticket.step, min(version, self.global_step))
        self._pulled[replica, incarnation] = pulled
        self._rule.take(replica, incarnation, sequence, pulled)

    def living(self, num_living: int) -> None:
        """Record how many replicas are alive, including those that have not joined yet."""
        self._rule.set_num_living(num_living)

    def settle(self) -> tuple[list[Decided], list[BatchTicket]]:
        """Decide what is due now."""
        dropped, self._dropped = self._dropped, []
        return self._decide([*dropped, *self._rule.settle(self.global_step, self.tickets)])

    def close(self) -> tuple[list[Decided], list[BatchTicket]]:
        """Decide on pending pushes although nothing more will come; as `settle`."""
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
            self.log.start += len(entries)  # no other shard needs them
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
