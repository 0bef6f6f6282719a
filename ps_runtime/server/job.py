"""The job as a state machine: tickets, members, input position, cuts. Events in, instructions out; no sockets, no clock.

A *ticket* is the permission for one push. It is given with a batch, comes back when its holder is lost, and is used up
when ps-0 commits the push; so ``global_step + tickets given <= max_steps`` always, and the last step is exact.

A *cut* is a moment without tickets: those given are committed or their holders lost. Then every shard copies what it
holds, and tickets flow again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ps_runtime.server.input_position import InputPosition, RecordRange
from ps_runtime.specs.input import InputSpec

__all__ = ["Cut", "CutReady", "Finished", "Granted", "Instruction", "Job", "Phase", "Refusal"]


class Phase(StrEnum):
    """Where a job stands."""

    OPENING = "waiting for the chief to initialise or restore the variables"
    TRAINING = "training"
    CUTTING = "copying a cut; no tickets until it is made"
    DRAINED = "the last push is in and its cut is made"
    FINISHED = "finished"


class Refusal(Exception):
    """An event that the job refuses; nothing has changed. `code` is for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Cut:
    """What a cut holds of the job: the step, who pushed what, and where the input stands. No stop flags."""

    step: int
    members: Mapping[int, tuple[int, int]]
    """Member -> (incarnation, sequence of its last committed push): the dedupe table."""
    input: Mapping[str, Any]
    num_examples: int

    def to_facts(self) -> dict[str, Any]:
        """Return the cut as plain data."""
        return {
            "step": self.step,
            "members": {str(member): list(life) for member, life in self.members.items()},
            "input": dict(self.input),
            "num_examples": self.num_examples,
        }

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Cut:
        """Read what `to_facts` wrote."""
        members = {int(m): (int(life[0]), int(life[1])) for m, life in facts["members"].items()}
        return cls(facts["step"], members, facts["input"], facts["num_examples"])


@dataclass(frozen=True, slots=True)
class Granted:
    """Give `member` a ticket for the batch `records`; it may read ahead to `split_stop`."""

    member: int
    global_step: int
    records: RecordRange
    split_stop: int


@dataclass(frozen=True, slots=True)
class Finished:
    """Tell `member` that no more tickets will come."""

    member: int
    global_step: int


@dataclass(frozen=True, slots=True)
class CutReady:
    """Tell the saver to have every shard copied now; after a final cut nothing more will come."""

    cut: Cut
    is_final: bool


Instruction = Granted | Finished | CutReady


@dataclass(slots=True)
class _Member:
    incarnation: int
    sequence: int = 0
    granted: Granted | None = None
    is_waiting: bool = False


@dataclass
class Job:
    """The one job machine, which ps-0 holds.

    Parameters
    ----------
    input_spec : InputSpec
    max_steps : int or None
        The last global_step; None: until the input ends.
    save_steps : int or None
        A cut is due at each multiple of it.
    """

    input_spec: InputSpec
    max_steps: int | None
    save_steps: int | None
    global_step: int = field(default=0, init=False)
    phase: Phase = field(default=Phase.OPENING, init=False)
    stop_reason: str | None = field(default=None, init=False)
    num_examples: int = field(default=0, init=False)
    input: InputPosition = field(init=False)

    def __post_init__(self) -> None:
        self.input = InputPosition(self.input_spec)
        self._members: dict[int, _Member] = {}
        self._past: dict[int, tuple[int, int]] = {}
        self._lost: dict[int, int] = {}
        self._cut_at: int | None = None
        self._cut_requested = False
        self._cut_told = False
        self._next_cut()

    # Events

    def restore(self, cut: Cut) -> None:
        """Take up a job where `cut` left it. Only while opening."""
        if self.phase is not Phase.OPENING:
            raise Refusal("phase", f"a restore is possible only at the start; the job is {self.phase}")
        self.global_step = cut.step
        self.num_examples = cut.num_examples
        self.input.restore(cut.input)
        self._past = dict(cut.members)
        self._next_cut()

    def open(self) -> None:
        """Let training begin: the variables have their values."""
        if self.phase is Phase.OPENING:
            self.phase = Phase.TRAINING

    def join(self, member: int, incarnation: int) -> int:
        """Take in a member, or a new life of it; return the sequence of its last committed push."""
        known = self._members.get(member)
        if known is not None and incarnation > known.incarnation:
            self.lost(member, known.incarnation)
            known = None
        past_incarnation, past_sequence = self._past.get(member, (0, 0))
        oldest = max(known.incarnation if known else 0, past_incarnation, self._lost.get(member, -1) + 1)
        if incarnation < oldest:
            raise Refusal(
                "incarnation", f"incarnation {incarnation} of replica {member} is over; {oldest} or later may join"
            )
        if known is None:
            known = _Member(incarnation, past_sequence if past_incarnation == incarnation else 0)
            self._members[member] = known
        return known.sequence

    def ask(self, member: int, incarnation: int) -> None:
        """Take note that `member` waits for a ticket: at its start, or again after a broken connection."""
        self._member(member, incarnation).is_waiting = True

    def push(self, member: int, incarnation: int, sequence: int, num_examples: int) -> RecordRange | None:
        """Commit a push and return the records that it used; None for the repeat of one that is committed already.

        Either way the member waits for its next ticket.
        """
        life = self._member(member, incarnation)
        if sequence < life.sequence:
            raise Refusal("sequence", f"push {sequence} of replica {member} is over; push {life.sequence} is committed")
        if sequence == life.sequence:
            life.is_waiting = True
            return None
        if life.granted is None:
            raise Refusal("ticket", f"replica {member} has no ticket for push {sequence}")
        records = life.granted.records
        self.input.commit(records)
        self.global_step += 1
        self.num_examples += num_examples
        life.granted, life.sequence, life.is_waiting = None, sequence, True
        return records

    def lost(self, member: int, incarnation: int) -> None:
        """Take note that a life of `member` is over; its ticket and its split return. Repeats do nothing."""
        life = self._members.get(member)
        if life is None or life.incarnation != incarnation:
            return
        self.input.give_back(member, life.granted.records if life.granted else None)
        self._past[member] = (incarnation, life.sequence)
        self._lost[member] = incarnation
        del self._members[member]

    def end_stream(self, num_records: int) -> None:
        """Take note that the stream has ended: tickets for records beyond its end return."""
        self.input.end_stream(num_records)
        for life in self._members.values():
            if life.granted is not None and life.granted.records.start >= num_records:
                life.granted = None

    def return_ticket(self, member: int, incarnation: int) -> None:
        """Take back the ticket of a member that will not use it; the member waits."""
        life = self._member(member, incarnation)
        self.input.give_back(member, life.granted.records if life.granted else None)
        life.granted = None
        life.is_waiting = True

    def stop(self, reason: str) -> None:
        """Give no more tickets; the job ends once those given are used."""
        self.stop_reason = self.stop_reason or reason

    def request_cut(self) -> None:
        """Make a cut as soon as the tickets given are used."""
        self._cut_requested = True

    def resume(self, step: int) -> None:
        """Take note that every shard has copied the cut of `step`. Repeats do nothing."""
        if self.phase is not Phase.CUTTING or step != self.global_step:
            return
        self.phase = Phase.DRAINED if self._is_done else Phase.TRAINING
        self._cut_requested = False
        self._next_cut()

    def forget_saver(self) -> None:
        """Take note that the saver vanished: a cut that is under way will be told again to the next one."""
        self._cut_told = False

    def finish(self) -> None:
        """Take note that the final checkpoint is committed; the job is over. Repeats do nothing."""
        if self.phase not in (Phase.DRAINED, Phase.FINISHED):
            raise Refusal("phase", f"the job cannot finish yet; it is {self.phase}")
        self.phase = Phase.FINISHED

    # Instructions

    def due(self, saver_waits: bool = False) -> list[Instruction]:
        """Return what is to be done now; each instruction is returned once.

        Parameters
        ----------
        saver_waits : bool
            Whether the saver waits to be told of a cut.
        """
        instructions: list[Instruction] = []
        if self.phase is Phase.TRAINING:
            instructions += self._grants()
            if self.num_given == 0 and self._cut_is_due:
                self.phase = Phase.CUTTING
                self._cut_told = False
        if self.phase is Phase.CUTTING and saver_waits and not self._cut_told:
            self._cut_told = True
            instructions.append(CutReady(self.cut(), self._is_done))
        if self.phase is Phase.FINISHED:
            for member, life in self._members.items():
                if life.is_waiting:
                    life.is_waiting = False
                    instructions.append(Finished(member, self.global_step))
        return instructions

    def cut(self) -> Cut:
        """Return what a cut made now holds of the job."""
        lives = {m: (life.incarnation, life.sequence) for m, life in self._members.items()}
        return Cut(self.global_step, self._past | lives, self.input.to_facts(), self.num_examples)

    @property
    def num_given(self) -> int:
        """Tickets that are given and not used."""
        return sum(life.granted is not None for life in self._members.values())

    @property
    def is_finished(self) -> bool:
        """Whether the job is over."""
        return self.phase is Phase.FINISHED

    @property
    def members(self) -> dict[int, int]:
        """The living members and their incarnations."""
        return {member: life.incarnation for member, life in self._members.items()}

    def statistics(self) -> dict[str, Any]:
        """Return counters, as plain data."""
        return {
            "phase": self.phase.name.lower(),
            "global_step": self.global_step,
            "tickets_given": self.num_given,
            "members": len(self._members),
            "examples": self.num_examples,
            "epochs_completed": self.input.epochs_completed,
            "repeats": self.input.num_repeats,
            "misses": self.input.num_misses,
            "stop_reason": self.stop_reason,
        }

    # Inside

    def _member(self, member: int, incarnation: int) -> _Member:
        life = self._members.get(member)
        if life is None or life.incarnation != incarnation:
            raise Refusal("incarnation", f"incarnation {incarnation} of replica {member} is not a member of this job")
        return life

    def _grants(self) -> list[Granted]:
        grants = []
        for member, life in self._members.items():
            if not life.is_waiting:
                continue
            if life.granted is None:
                life.granted = self._ticket(member)
            if life.granted is not None:
                life.is_waiting = False
                grants.append(life.granted)
        return grants

    def _ticket(self, member: int) -> Granted | None:
        if self.stop_reason is not None or self._cut_requested or self._steps_left() <= 0:
            return None
        records = self.input.take(member)
        if records is None:
            return None
        return Granted(member, self.global_step, records, self.input.split_stop(member, records))

    def _steps_left(self) -> float:
        ends = [end for end in (self.max_steps, self._cut_at) if end is not None]
        return min(ends, default=float("inf")) - self.global_step - self.num_given

    @property
    def _is_done(self) -> bool:
        reached = self.max_steps is not None and self.global_step >= self.max_steps
        return self.num_given == 0 and (reached or self.stop_reason is not None or self.input.is_exhausted)

    @property
    def _cut_is_due(self) -> bool:
        return self._cut_requested or self._is_done or self.global_step == self._cut_at

    def _next_cut(self) -> None:
        if self.save_steps is not None:
            self._cut_at = (self.global_step // self.save_steps + 1) * self.save_steps
