"""The job as a state machine: tickets, members, input position, cuts. Events in, instructions out.

A *ticket* is the permission for one push. It is given with a batch, comes back when its holder is lost, and is used up
when ps-0 commits the push; so ``global_step + tickets given <= max_steps`` always, and the last step is exact.

A *cut* is a moment without tickets: those given are committed or their holders lost. Then every shard copies what it
holds, and tickets flow again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ps_runtime.server.input_position import InputPosition, RecordRange
from ps_runtime.server.instructions import Cut, CutReady, Finished, Granted, Instruction, Life, Phase, Refusal
from ps_runtime.specs.input import InputSpec

__all__ = ["Job"]


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
    finished_step : int or None
        Where an earlier attempt came to its end, if it did: who trains on from there reads an exhausted input again.
    """

    input_spec: InputSpec
    max_steps: int | None
    save_steps: int | None
    finished_step: int | None = None
    global_step: int = field(default=0, init=False)
    phase: Phase = field(default=Phase.OPENING, init=False)
    stop_reason: str | None = field(default=None, init=False)
    num_examples: int = field(default=0, init=False)
    input: InputPosition = field(init=False)

    def __post_init__(self) -> None:
        self.input = InputPosition(self.input_spec)
        self._members: dict[int, _Member] = {}
        self._past: dict[Life, int] = {}
        self._oldest: dict[int, int] = {}
        self._cut_at: int | None = None
        self._cut_requested = False
        self._told_final: bool | None = None
        self._next_cut()

    # Events

    def restore(self, cut: Cut) -> None:
        """Take up a job where `cut` left it. Only while opening. ValueError if `cut` is not sound."""
        if self.phase is not Phase.OPENING:
            raise Refusal("phase", f"a restore is possible only at the start; the job is {self.phase}")
        self.input = InputPosition.restored(self.input_spec, cut.input)
        if cut.step == self.finished_step and self.input.is_exhausted:
            self.input.begin_again()
        self.global_step = cut.step
        self.num_examples = cut.num_examples
        self._past = dict(cut.lives)
        for member, incarnation in self._past:
            self._oldest[member] = max(incarnation, self._oldest.get(member, 0))
        for member, life in list(self._members.items()):
            if life.incarnation < self._oldest.get(member, 0):
                del self._members[member]
            life.sequence = self._past.get((member, life.incarnation), 0)
        self._next_cut()

    def open(self) -> None:
        """Let training begin: the variables have their values."""
        if self.phase is Phase.OPENING:
            self.phase = Phase.TRAINING

    def join(self, member: int, incarnation: int) -> int:
        """Take in a member, or a new life of it; return the sequence of its last committed push."""
        known = self._members.get(member)
        oldest = max(self._oldest.get(member, 0), known.incarnation if known else 0)
        if incarnation < oldest:
            raise Refusal(
                "incarnation", f"incarnation {incarnation} of replica {member} is over; {oldest} or later may join"
            )
        if known is not None and known.incarnation < incarnation:
            self.lost(member, known.incarnation)
            known = None
        if known is None:
            known = self._members[member] = _Member(incarnation, self._past.get((member, incarnation), 0))
        return known.sequence

    def ask(self, member: int, incarnation: int) -> None:
        """Take note that `member` waits for a ticket: at its start, or again after a broken connection."""
        self._member(member, incarnation).is_waiting = True

    def away(self, member: int, incarnation: int) -> None:
        """Take note that `member` cannot be answered: it gets no new ticket before it asks again."""
        life = self._members.get(member)
        if life is not None and life.incarnation == incarnation:
            life.is_waiting = False

    def push(self, member: int, incarnation: int, sequence: int, num_examples: int) -> RecordRange | None:
        """Commit a push and return the records that it used; None for the repeat of one that is committed already.

        Either way the member waits for its next ticket.
        """
        life = self._member(member, incarnation)
        if sequence == life.sequence:
            life.is_waiting = True
            return None
        if sequence != life.sequence + 1:
            raise Refusal(
                "sequence", f"push {sequence} of replica {member} is out of turn; push {life.sequence} is committed"
            )
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
        self._past[(member, incarnation)] = life.sequence
        self._oldest[member] = incarnation + 1
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

    def must_be_cutting(self, step: int) -> None:
        """Refuse unless the cut of `step` is to be copied now."""
        if self.phase not in (Phase.CUTTING, Phase.DRAINED) or step != self.global_step:
            raise Refusal("phase", f"no cut of step {step} is due; the job is at step {self.global_step}, {self.phase}")

    def resume(self, step: int) -> None:
        """Take note that every shard has copied the cut of `step`. Repeats do nothing."""
        if self.phase is not Phase.CUTTING or self._told_final is None or step != self.global_step:
            return
        # what was told counts: a stream may have ended since, and then a final cut comes next
        self.phase = Phase.DRAINED if self._told_final else Phase.TRAINING
        self._cut_requested = False
        self._forget_lives()
        self._next_cut()

    def forget_saver(self) -> None:
        """Take note that the saver may not have heard of a cut: the one under way will be told again."""
        self._told_final = None

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
                self._told_final = None
        if self.phase in (Phase.CUTTING, Phase.DRAINED) and saver_waits and self._told_final is None:
            self._told_final = self._is_done
            instructions.append(CutReady(self.cut(), self._told_final))
        if self.phase is Phase.FINISHED:
            for member, life in self._members.items():
                if life.is_waiting:
                    life.is_waiting = False
                    instructions.append(Finished(member, self.global_step))
        return instructions

    def cut(self) -> Cut:
        """Return what a cut made now holds of the job."""
        lives = {(m, life.incarnation): life.sequence for m, life in self._members.items()}
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

    def _forget_lives(self) -> None:
        """Forget the lives that no push can be held of any more, but for the last one of each member."""
        newest = dict(sorted(self._past)) | self.members
        self._past = {life: sequence for life, sequence in self._past.items() if newest[life[0]] == life[1]}

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
