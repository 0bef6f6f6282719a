"""Runs the job as a state machine: tickets, replicas, input position, snapshots. Events in, instructions out.

A *ticket* is the permission for one push. It is given with a batch, returns when its holder is lost, and is used up
when ps-0 accepts the push. No more tickets are given than updates are left, so the last step is exact.

A *snapshot* is consistent: it is made while there are no tickets, because those given are used or their holders lost.
Then every shard copies its values, and ps-0 gives tickets again. `snapshot_protocol.py` has the phases.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from psflow.ps_runtime.protocol.job_state import JobState, Snapshot
from psflow.ps_runtime.server.deadlines import Deadlines
from psflow.ps_runtime.server.input_position import InputPositions
from psflow.ps_runtime.server.instructions import (
    CHIEF,
    Decided,
    Expired,
    Instruction,
    JobFinished,
    Phase,
    SnapshotReady,
)
from psflow.ps_runtime.server.replicas import Replicas, TicketQueue
from psflow.ps_runtime.server.snapshot_protocol import SnapshotProtocol
from psflow.ps_runtime.server.updates import BatchTicket, Updates
from psflow.ps_runtime.specs.consistency import Async, Consistency, StepDeadline
from psflow.ps_runtime.specs.input import InputSpec, RecordRange


@dataclass
class Job:
    """The state machine of the job, on ps-0."""

    input_spec: InputSpec
    max_steps: int | None
    save_steps: int | None
    finished_step: int | None = None
    consistency: Consistency = field(default_factory=Async)
    num_replicas: int = 1
    num_shards: int = 1
    step_deadline: StepDeadline = field(default_factory=StepDeadline)
    stop_reason: str | None = field(default=None, init=False)
    resting: dict[int, str] = field(default_factory=dict, init=False)
    """Replicas that wait for the others to leave; each with its reason to stop the job then."""
    num_examples: int = field(default=0, init=False)
    input: InputPositions = field(init=False)

    def __post_init__(self) -> None:
        self.input = InputPositions(self.input_spec, self.num_replicas)
        self._updates = Updates(self.consistency, self.num_replicas, self.num_shards)
        self._replicas = Replicas()
        self._deadlines = Deadlines(self.step_deadline, own_queues=self.input_spec.each_worker_reads_all)
        self._snapshots = SnapshotProtocol(self.max_steps, self.save_steps)
        self._queue = TicketQueue(self._replicas, self._updates, self._snapshots, self.num_shards)

    # Events

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a job from `snapshot`. Only while opening. ValueError if `snapshot` is not valid."""
        positions = InputPositions.restored(self.input_spec, self.num_replicas, snapshot.input)
        self._snapshots.restore(snapshot.step)
        self.input = positions
        if snapshot.step == self.finished_step:
            self.input.restart()
        self._updates.global_step = snapshot.step
        self.num_examples = snapshot.num_examples
        self._replicas.restore(snapshot.sequences)
        for replica in self._queue.waiting.keys() - self._replicas.living.keys():
            self._queue.forget(replica)

    def open(self) -> None:
        """Let training begin: the variables have their values. Repeats do nothing."""
        self._snapshots.open()

    def join(self, replica: int, incarnation: int) -> int:
        """Add a replica, or a new incarnation of it; return the sequence of its last accepted push."""
        self._replicas.must_not_be_over(replica, incarnation)
        known = self._replicas.living.get(replica)
        if known is not None and known.incarnation < incarnation:
            self.lost(replica, known.incarnation)
            known = None
        if known is None:
            known = self._replicas.join(replica, incarnation)
            self.input.came(replica)
            self._pass_on_living()
        return known.sequence

    def must_live(self, replica: int, incarnation: int) -> None:
        """Refuse an incarnation that is over."""
        self._replicas.get(replica, incarnation)

    def ask(self, replica: int, incarnation: int, num_known: int = 0) -> None:
        """Record that `replica`, which holds `num_known` tickets, requests one more.

        If it holds a ticket, the answer comes at once; otherwise it waits.
        """
        self._queue.ask(replica, incarnation, num_known)

    def away(self, replica: int, incarnation: int) -> None:
        """Record that `replica` cannot be answered: it gets no new ticket before it asks again."""
        if self.replicas.get(replica) == incarnation:
            self._queue.forget(replica)

    def push(
        self,
        replica: int,
        incarnation: int,
        sequence: int,
        num_examples: int,
        version: int | None = None,
        num_known: int = 0,
    ) -> RecordRange | None:
        """Accept a push, which uses the replica's oldest ticket, or drop it; the replica requests its next one."""
        state = self._replicas.get(replica, incarnation)
        if sequence == state.sequence:
            self.ask(replica, incarnation, num_known)
            return None
        ticket = state.next_ticket(replica, sequence, awaits_decision=self._updates.holds_push_of(replica))
        self._deadlines.pushed(state, ticket)
        state.sequence = sequence
        self._updates.log.forget(state.log_told)  # the replica has passed that on before it pushed
        self._updates.take(ticket, incarnation, sequence, self.global_step if version is None else version)
        self.ask(replica, incarnation, num_known)
        records = ticket.records
        if ticket.is_void:
            return RecordRange(records.epoch, records.start, records.start)
        self.input.of(replica).commit(records)
        self.num_examples += num_examples
        return records

    def lost(self, replica: int, incarnation: int, why: str | None = None) -> None:
        """Record that an incarnation of `replica` is over, and `why`: tickets and split return. Repeats do nothing."""
        if self._replicas.is_over_unseen(replica, incarnation):
            self._pass_on_living()
        state = self._replicas.living.get(replica)
        if state is None or state.incarnation != incarnation:
            return
        state.return_all(replica, self._updates, self.input.of(replica))
        self._replicas.bury(replica, why)
        self._queue.forget(replica)
        self.resting.pop(replica, None)
        self._pass_on_living()

    def tick(self, secs: float, fetching: Collection[int] = ()) -> list[Expired]:
        """Record that time has passed; a worker that others have waited for too long is lost."""
        if self.phase not in (Phase.TRAINING, Phase.SNAPSHOT_REQUESTED):
            return []
        waiting = self._queue.waiting.keys() - self.resting.keys()
        gains = self.phase is Phase.SNAPSHOT_REQUESTED or not all(map(self.input.has_used_up_own, waiting))
        expired = self._deadlines.tick(secs, self._replicas.living, waiting, fetching, gains=gains)
        for end in expired:
            self.lost(end.replica, end.incarnation, f"it made no push within {end.secs:g} s, and others waited for it")
        return expired

    def left(self, replica: int, incarnation: int) -> None:
        """Record that `replica` will not return: its own input is not waited for."""
        if self.replicas.get(replica) == incarnation:
            self.input.left(replica)
        self.lost(replica, incarnation)

    def end_stream(self, num_records: int) -> None:
        """Record that the shared stream has ended: tickets for records beyond its end return."""
        self.input.of(CHIEF).end_stream(num_records)
        for state in self._replicas.living.values():
            state.return_beyond(num_records, self._updates)

    def end_private_stream(self, replica: int, incarnation: int, num_records: int) -> None:
        """Record that the private stream of `replica` has ended. Repeats do nothing."""
        state = self._replicas.get(replica, incarnation)
        self.input.of(replica).end_stream(num_records)
        state.return_beyond(num_records, self._updates)

    def return_tickets(self, replica: int, incarnation: int) -> None:
        """Take back the unused tickets of a replica; the replica waits."""
        self._replicas.get(replica, incarnation).return_all(replica, self._updates, self.input.of(replica))
        self.ask(replica, incarnation)

    def stop(self, reason: str) -> None:
        """Give no more tickets; the job ends once those given are used."""
        self.stop_reason = self.stop_reason or reason

    def stop_after_others(self, replica: int, reason: str) -> None:
        """Give `replica` no more tickets; stop the job once no other replica trains. Repeats do nothing."""
        self.resting[replica] = reason
        self.input.left(replica)
        self._pass_on_living()

    def request_snapshot(self) -> None:
        """Make a snapshot as soon as the tickets given are used."""
        self._snapshots.request_snapshot()

    def copying(self, step: int) -> None:
        """Record that the shards copy the snapshot of `step`, and receive the log with it; refuse unless it is due."""
        self._snapshots.snapshot(step, self.global_step)

    def resume(self, step: int) -> None:
        """Record that every shard has copied the snapshot of `step`, or need not. Repeats do nothing."""
        if self._snapshots.resume(step, self.global_step):
            self._replicas.forget_past()
            self._updates.log.forget(self._snapshots.num_heard)

    def forget_saver(self) -> None:
        """Record that the saver does not know of a snapshot under way, which will be announced again."""
        self._snapshots.await_snapshot()

    def committed(self, step: int) -> None:
        """Record that the checkpoint of `step` exists. Repeats do nothing."""
        self._snapshots.committed(step)

    def finish(self) -> None:
        """Record that the final checkpoint is committed; the job is over. Repeats do nothing."""
        self._snapshots.finish()

    # Instructions

    def due(self, saver_waits: bool = False) -> list[Instruction]:
        """Return the instructions that are due now, in order; each one is returned once."""
        instructions = self._settle(*self._updates.settle())
        snapshots = self._snapshots
        if snapshots.phase is Phase.TRAINING or snapshots.phase is Phase.SNAPSHOT_REQUESTED:
            instructions += self._train()
            if not self._updates.tickets:
                snapshots.tickets_used(self.global_step, is_done=self._is_done)
        if snapshots.phase is Phase.SNAPSHOT_DUE and saver_waits:
            is_final = self._is_done
            snapshot = self.snapshot()
            snapshots.announce(snapshot, is_final=is_final)
            instructions.append(SnapshotReady(snapshot, is_final))
        if snapshots.phase is Phase.FINISHED:
            instructions += [JobFinished(replica, self.global_step) for replica in self._queue.waiting]
            self._queue.waiting.clear()
        return instructions

    def snapshot(self) -> Snapshot:
        """Return the job's part of a snapshot made now."""
        log, position = self._updates.log, self.input.to_facts()
        return Snapshot(
            self.global_step, self._replicas.sequences(), position, self.num_examples, log.start, (*log.entries,)
        )

    def state(self) -> JobState:
        """Return the state of the job, for a new incarnation of the chief."""
        is_open = self.phase not in (Phase.OPENING, Phase.OPENING_SNAPSHOT_REQUESTED)
        return JobState(is_open, self.is_finished, self._snapshots.uncommitted)

    @property
    def phase(self) -> Phase:
        """The phase of the job."""
        return self._snapshots.phase

    @property
    def global_step(self) -> int:
        """Updates so far."""
        return self._updates.global_step

    @property
    def num_given(self) -> int:
        """Tickets that are given, not used and not void."""
        return len(self._updates.tickets)

    @property
    def is_finished(self) -> bool:
        """Whether the job is over."""
        return self.phase is Phase.FINISHED

    @property
    def replicas(self) -> dict[int, int]:
        """The living replicas and their incarnations."""
        return {replica: state.incarnation for replica, state in self._replicas.living.items()}

    def statistics(self) -> dict[str, Any]:
        """Return counters, as plain data."""
        return {
            "phase": self.phase.name.lower(),
            "global_step": self.global_step,
            "tickets_given": self.num_given,
            "replicas": len(self._replicas.living),
            "examples": self.num_examples,
            "epochs_completed": self.input.epochs_completed,
            "repeats": self.input.num_repeats,
            "misses": self.input.num_misses,
            "stop_reason": self.stop_reason,
            "input_end": self._input_end(),
        } | self._updates.statistics()

    # Inside

    def _input_end(self) -> str | None:
        """Return the sentence that the input ended before the last step; None if it did not."""
        if not self.input.is_exhausted or (self.max_steps is not None and self.global_step >= self.max_steps):
            return None
        of, remedy = ("", "") if self.max_steps is None else (f" of {self.max_steps:,}", "; repeat() reads it again")
        epochs = self.input.epochs_completed
        read = f"{self.num_examples:,} examples in {epochs:,} epoch{'s' if epochs != 1 else ''}"
        return f"the input ended after {self.global_step:,}{of} steps ({read}){remedy}"

    def _pass_on_living(self) -> None:
        here_or_to_come = self.num_replicas - len(self._replicas.gone)
        num_living = max(here_or_to_come, len(self._replicas.living))
        if 0 < len(self.resting) == num_living:
            self.stop(next(iter(self.resting.values())))
        self._updates.living(num_living - len(self.resting))

    def _settle(self, decided: list[Decided], void: list[BatchTicket]) -> list[Instruction]:
        for ticket in void:
            self.input.of(ticket.replica).put_back(ticket.replica, ticket.records)
        return list(decided)

    def _train(self) -> list[Instruction]:
        """Give tickets; where that is impossible, decide on the pushes at hand, and try again."""
        instructions: list[Instruction] = []
        while True:
            stopped = self.resting if self.stop_reason is None else self._replicas.living
            answers, is_starved = self._queue.answers(self.input, stopped)
            instructions += answers
            is_ended = self.stop_reason is not None or self.input.is_exhausted  # all replicas may be away by then
            no_more = is_starved or is_ended or self._snapshots.phase is Phase.SNAPSHOT_REQUESTED
            if not no_more or self._updates.tickets:
                return instructions
            closed = self._settle(*self._updates.close())
            if not closed:
                return instructions
            instructions += closed

    @property
    def _is_done(self) -> bool:
        reached = self.max_steps is not None and self.global_step >= self.max_steps
        return not self._updates.tickets and (reached or self.stop_reason is not None or self.input.is_exhausted)
