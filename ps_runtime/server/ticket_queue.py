"""Who waits for a ticket, and what each of them is answered."""

from __future__ import annotations

from psflow.ps_runtime.server.cut_protocol import CutProtocol
from psflow.ps_runtime.server.input_positions import InputPositions
from psflow.ps_runtime.server.instructions import Granted, Instruction, NoTicket, Phase
from psflow.ps_runtime.server.replicas import Replica, Replicas
from psflow.ps_runtime.server.updates import BatchTicket, Updates

__all__ = ["TicketQueue"]


class TicketQueue:
    """The replicas that have asked for a ticket, in the order in which they did."""

    def __init__(self, replicas: Replicas, updates: Updates, cuts: CutProtocol, num_shards: int) -> None:
        self.waiting: dict[int, None] = {}
        self._replicas = replicas
        self._updates = updates
        self._cuts = cuts
        self._num_shards = num_shards

    def ask(self, replica: int, incarnation: int, num_known: int) -> None:
        """Take note that `replica`, which holds `num_known` tickets, asks for one more."""
        self._replicas.get(replica, incarnation).num_known = num_known
        self.waiting[replica] = None

    def forget(self, replica: int) -> None:
        """Take note that `replica` waits no more, or cannot be answered."""
        self.waiting.pop(replica, None)

    def answers(self, position: InputPositions, *, is_stopped: bool) -> tuple[list[Instruction], bool]:
        """Answer those who wait, as far as that can be."""
        answers: list[Instruction] = []
        is_starved = False
        for replica in list(self.waiting):
            life = self._replicas.living[replica]
            tickets, num_known = life.tickets, life.num_known
            while len(tickets) > num_known and tickets[-1].is_void:
                tickets.pop()
            if self._updates.holds_push_of(replica):
                continue
            if len(tickets) == num_known and not is_stopped:
                is_starved |= not self._give_ticket(replica, life, position)
            if len(tickets) > num_known:
                answers.append(self._granted(replica, life))
            elif num_known:
                answers.append(NoTicket(replica, self._updates.global_step, self._log_for(life)))
            else:
                continue
            del self.waiting[replica]
        return answers, is_starved

    def _give_ticket(self, replica: int, life: Replica, position: InputPositions) -> bool:
        """Give a ticket if that may be; return False if only the input has nothing to give."""
        if self._cuts.phase is Phase.CUT_REQUESTED:
            return True
        if not self._updates.has_room(replica, self._cuts.last_ticket_step):
            return True
        records = position.of(replica).take(replica)
        if records is None:
            return False
        ticket = BatchTicket(replica, self._updates.global_step, records)
        self._updates.give(ticket)
        if not life.tickets:
            life.step_secs = 0.0
        life.tickets.append(ticket)
        return True

    def _granted(self, replica: int, life: Replica) -> Granted:
        ticket = life.tickets[life.num_known]
        staleness = self._updates.staleness.get(replica, 0)
        return Granted(replica, ticket.step, ticket.records, staleness, self._log_for(life))

    def _log_for(self, life: Replica) -> bytes:
        """Return what a replica is to hand on to the other shards before its next push."""
        log = self._updates.log
        life.log_told = log.end
        return log.encode() if self._num_shards > 1 else b""
