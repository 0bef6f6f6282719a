"""How pushes become updates: one object per consistency, which accepts, holds or drops them.

Plain decisions without clocks or sockets. The job asks `has_room` before it gives a ticket, tells of each push with
`take`, and asks after every event what is due now with `settle`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from psflow.ps_runtime.protocol.decisions import Decision, Entry
from psflow.ps_runtime.specs.consistency import Async, BoundedStaleness, Consistency, Hogwild, Sync

__all__ = ["AsyncState", "BoundedStalenessState", "ConsistencyState", "SyncState", "Ticket", "consistency_state"]


@dataclass(slots=True, eq=False)
class Ticket:
    """The permission for one push of `replica`, given at global_step `step`."""

    replica: int
    step: int


class Taken(NamedTuple):
    """A push that is taken in; `entry` says how, `version` what it was computed on."""

    entry: Entry
    version: int


class ConsistencyState(ABC):
    """The rule by which pushes become updates, and what it has in hand."""

    voids_tickets = False
    """Whether an update makes the tickets given before it worthless."""

    @abstractmethod
    def has_room(self, replica: int, steps_left: float, tickets: Collection[Ticket]) -> bool:
        """Return whether `replica` may have one more ticket."""

    @abstractmethod
    def take(self, replica: int, incarnation: int, sequence: int, version: int) -> None:
        """Take in a push; its ticket is used up already."""

    @abstractmethod
    def settle(self, global_step: int, tickets: Collection[Ticket]) -> list[Entry]:
        """Return what is decided now, each decision once."""

    def holds_push_of(self, replica: int) -> bool:
        """Return whether a push of `replica` waits, and `replica` with it."""
        return False

    def close(self) -> list[Entry]:
        """Decide on what is in hand although no more pushes come: all tickets are used, and no more are given."""
        return []

    def granted(self, replica: int) -> None:  # noqa: B027  (most rules need not know)
        """Take note that a ticket was given."""

    def returned(self, replica: int) -> None:  # noqa: B027  (most rules need not know)
        """Take note that a ticket came back unused."""

    def lives(self, num_living: int) -> None:  # noqa: B027  (most rules need not know)
        """Take note of how many replicas are alive, those included that have not come yet."""


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
    So the bound is kept without dropping anything, and nothing waits for ever.
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
        """How many gradients make an update now: what the living can give, if that is less than was asked for."""
        return max(1, min(self._wanted, self._quota * self._num_living))

    def has_room(self, replica: int, steps_left: float, tickets: Collection[Ticket]) -> bool:  # noqa: D102
        is_needed = self._shares[replica] == 0 or self._num_summed + len(tickets) < self.num_wanted
        return steps_left > 0 and self._shares[replica] < self._quota and is_needed

    def granted(self, replica: int) -> None:  # noqa: D102
        self._shares[replica] += 1

    def returned(self, replica: int) -> None:  # noqa: D102
        self._shares[replica] -= 1

    def lives(self, num_living: int) -> None:  # noqa: D102
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
    """Return the rule that `consistency` describes, for so many training replicas."""
    match consistency:
        case Sync():
            return SyncState(consistency.gradients_per_update(num_replicas), num_replicas)
        case BoundedStaleness(max_staleness):
            return BoundedStalenessState(max_staleness)
        case Async() | Hogwild():
            return AsyncState()
        case unknown:
            assert_never(unknown)
