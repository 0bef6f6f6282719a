"""Holds the living replicas of a job, and what is known of earlier incarnations."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from psflow.ps_runtime.protocol.message import Incarnation
from psflow.ps_runtime.server.input_position import InputPosition, InputPositions
from psflow.ps_runtime.server.instructions import Granted, Instruction, NoTicket, Phase, Refusal, replica_name
from psflow.ps_runtime.server.snapshot_protocol import SnapshotProtocol
from psflow.ps_runtime.server.updates import BatchTicket, Updates


@dataclass(slots=True)
class Replica:
    """A living replica."""

    incarnation: int
    sequence: int = 0
    """Of its last accepted push."""
    tickets: deque[BatchTicket] = field(default_factory=deque)
    num_known: int = 0
    """Tickets that it reports to hold; a further one may be on its way."""
    log_told: int = 0
    """End of the log that came with its last ticket."""
    step_secs: float = 0.0
    """Duration of its present step: since its last push, or since it got a ticket where it had none."""

    def next_ticket(self, replica: int, sequence: int, *, awaits_decision: bool) -> BatchTicket:
        """Return the ticket that push `sequence` uses, its oldest one; a Refusal if the push is out of turn."""
        if sequence != self.sequence + 1:
            raise Refusal(
                "sequence",
                f"push {sequence} of {replica_name(replica)} is out of turn; push {self.sequence} was the last",
            )
        if awaits_decision:
            raise Refusal(
                "sequence", f"push {sequence} of {replica_name(replica)} came before the answer to the last one"
            )
        if not self.tickets:
            raise Refusal("ticket", f"{replica_name(replica)} has no ticket for push {sequence}")
        return self.tickets.popleft()

    def return_all(self, replica: int, updates: Updates, position: InputPosition) -> None:
        """Take back all its tickets, and its input split."""
        for ticket in self.tickets:
            updates.unused(ticket)
            position.give_back(replica, None if ticket.is_void else ticket.records)
        position.give_back(replica, None)
        self.tickets.clear()

    def return_beyond(self, num_records: int, updates: Updates) -> None:
        """Take back the tickets for records beyond the end of a stream."""
        for ticket in [t for t in self.tickets if t.records.start >= num_records]:
            self.tickets.remove(ticket)
            updates.unused(ticket)


class Replicas:
    """The living replicas, and the sequences of all incarnations since the last snapshot: the dedupe table."""

    def __init__(self) -> None:
        self.living: dict[int, Replica] = {}
        self.gone: set[int] = set()
        """Replicas whose last incarnation is over."""
        self._past: dict[Incarnation, int] = {}
        self._oldest: dict[int, int] = {}
        self._ends: dict[int, str] = {}
        """Why the last incarnation of a replica is over, if another replica's wait ended it."""

    def get(self, replica: int, incarnation: int) -> Replica:
        """Return a living replica; a Refusal if this incarnation is not living."""
        state = self.living.get(replica)
        if state is None or state.incarnation != incarnation:
            reason = f"incarnation {incarnation} of {replica_name(replica)} is not part of this job"
            if replica in self._ends and incarnation == self._oldest[replica] - 1:
                reason += f" any more: {self._ends[replica]}"
            raise Refusal("incarnation", reason)
        return state

    def must_not_be_over(self, replica: int, incarnation: int) -> None:
        """Refuse an incarnation that has a later one."""
        known = self.living.get(replica)
        oldest = max(self._oldest.get(replica, 0), known.incarnation if known else 0)
        if incarnation < oldest:
            raise Refusal(
                "incarnation",
                f"incarnation {incarnation} of {replica_name(replica)} has ended; expected {oldest} or later",
            )

    def join(self, replica: int, incarnation: int) -> Replica:
        """Add a new incarnation."""
        state = self.living[replica] = Replica(incarnation, self._past.get((replica, incarnation), 0))
        self.gone.discard(replica)
        return state

    def is_over_unseen(self, replica: int, incarnation: int) -> bool:
        """Record that an unseen incarnation is over; return whether that is new: no later one was expected."""
        if replica in self.living or incarnation < self._oldest.get(replica, 0):
            return False
        self._oldest[replica] = incarnation + 1
        self.gone.add(replica)
        return True

    def bury(self, replica: int, why: str | None = None) -> None:
        """End the present incarnation of a replica; `why` is for the role, which may not know."""
        state = self.living.pop(replica)
        self._ends.pop(replica, None)
        if why is not None:
            self._ends[replica] = why
        self._past[(replica, state.incarnation)] = state.sequence
        self._oldest[replica] = state.incarnation + 1
        self.gone.add(replica)

    def restore(self, sequences: Mapping[Incarnation, int]) -> None:
        """Restore the dedupe table of a snapshot; joined replicas stay, unless their incarnation is over in it."""
        self._past = dict(sequences)
        for replica, incarnation in sequences:
            self._oldest[replica] = max(incarnation, self._oldest.get(replica, 0))
        for replica, state in list(self.living.items()):
            if state.incarnation < self._oldest.get(replica, 0):
                del self.living[replica]
            state.sequence = sequences.get((replica, state.incarnation), 0)

    def sequences(self) -> dict[Incarnation, int]:
        """Return the dedupe table: the sequence of the last push of each incarnation."""
        return self._past | {(m, state.incarnation): state.sequence for m, state in self.living.items()}

    def forget_past(self) -> None:
        """Drop incarnations that no shard can hold a push of, except the last one of each replica."""
        newest = dict(sorted(self._past)) | {m: state.incarnation for m, state in self.living.items()}
        self._past = {state: sequence for state, sequence in self._past.items() if newest[state[0]] == state[1]}


class TicketQueue:
    """The replicas that have requested a ticket, in order."""

    def __init__(self, replicas: Replicas, updates: Updates, snapshots: SnapshotProtocol, num_shards: int) -> None:
        self.waiting: dict[int, None] = {}
        self._replicas = replicas
        self._updates = updates
        self._snapshots = snapshots
        self._num_shards = num_shards

    def ask(self, replica: int, incarnation: int, num_known: int) -> None:
        """Record that `replica`, which holds `num_known` tickets, requests one more."""
        self._replicas.get(replica, incarnation).num_known = num_known
        self.waiting[replica] = None

    def forget(self, replica: int) -> None:
        """Record that `replica` waits no more, or cannot be answered."""
        self.waiting.pop(replica, None)

    def answers(self, position: InputPositions, stopped: Container[int]) -> tuple[list[Instruction], bool]:
        """Answer the waiting replicas, as far as possible; `stopped` ones get no new ticket."""
        answers: list[Instruction] = []
        is_starved = False
        for replica in list(self.waiting):
            state = self._replicas.living[replica]
            tickets, num_known = state.tickets, state.num_known
            while len(tickets) > num_known and tickets[-1].is_void:
                tickets.pop()
            if self._updates.holds_push_of(replica):
                continue
            if len(tickets) == num_known and replica not in stopped:
                is_starved |= not self._give_ticket(replica, state, position)
            if len(tickets) > num_known:
                answers.append(self._granted(replica, state))
            elif num_known:
                answers.append(NoTicket(replica, self._updates.global_step, self._log_for(state)))
            else:
                continue
            del self.waiting[replica]
        return answers, is_starved

    def _give_ticket(self, replica: int, state: Replica, position: InputPositions) -> bool:
        """Give a ticket if allowed; return False if only the input has nothing to give."""
        if self._snapshots.phase is Phase.SNAPSHOT_REQUESTED:
            return True
        if not self._updates.has_room(replica, self._snapshots.last_ticket_step):
            return True
        records = position.of(replica).take(replica)
        if records is None:
            return False
        ticket = BatchTicket(replica, self._updates.global_step, records)
        self._updates.give(ticket)
        if not state.tickets:
            state.step_secs = 0.0
        state.tickets.append(ticket)
        return True

    def _granted(self, replica: int, state: Replica) -> Granted:
        ticket = state.tickets[state.num_known]
        staleness = self._updates.staleness.get(replica, 0)
        return Granted(replica, ticket.step, ticket.records, staleness, self._log_for(state))

    def _log_for(self, state: Replica) -> bytes:
        """Return the log that a replica is to pass to the other shards before its next push."""
        log = self._updates.log
        state.log_told = log.end
        return log.encode() if self._num_shards > 1 else b""
