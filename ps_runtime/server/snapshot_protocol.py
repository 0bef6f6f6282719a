"""The cut protocol as a state machine: the phases of a job, the events that change them, and when a cut is due.

The table is the protocol: an event that it does not have in a phase is refused, and nothing has changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.server.instructions import Phase, Refusal


class SnapshotEvent(StrEnum):
    """What may change the phase of a job. The value says why the event is refused where the table does not have it."""

    RESTORE = "a restore is possible only at the start; the job is {phase}"
    OPEN = "the job cannot be opened; it is {phase}"
    REQUEST_CUT = "no cut can be requested; the job is {phase}"
    TICKETS_USED = "no cut can be due; the job is {phase}"
    AWAIT_CUT = "no further cut comes; the job is {phase}"
    ANNOUNCE = "no cut can be announced; the job is {phase}"
    ANNOUNCE_FINAL = "no final cut can be announced; the job is {phase}"
    SNAPSHOT = "no cut of step {step} is due; the job is at step {global_step}, {phase}; await the next cut"
    RESUME = "no cut of step {step} is under way; the job is at step {global_step}, {phase}; await the next cut"
    FINISH = "the job cannot finish yet; it is {phase}"


TRANSITIONS: Mapping[Phase, Mapping[SnapshotEvent, Phase]] = {
    Phase.OPENING: {
        SnapshotEvent.RESTORE: Phase.OPENING,
        SnapshotEvent.OPEN: Phase.TRAINING,
        SnapshotEvent.REQUEST_CUT: Phase.OPENING_CUT_REQUESTED,
        SnapshotEvent.AWAIT_CUT: Phase.OPENING,
    },
    Phase.OPENING_CUT_REQUESTED: {
        SnapshotEvent.RESTORE: Phase.OPENING_CUT_REQUESTED,
        SnapshotEvent.OPEN: Phase.CUT_REQUESTED,
        SnapshotEvent.REQUEST_CUT: Phase.OPENING_CUT_REQUESTED,
        SnapshotEvent.AWAIT_CUT: Phase.OPENING_CUT_REQUESTED,
    },
    Phase.TRAINING: {
        SnapshotEvent.OPEN: Phase.TRAINING,
        SnapshotEvent.REQUEST_CUT: Phase.CUT_REQUESTED,
        SnapshotEvent.TICKETS_USED: Phase.CUT_DUE,
        SnapshotEvent.AWAIT_CUT: Phase.TRAINING,
    },
    Phase.CUT_REQUESTED: {
        SnapshotEvent.OPEN: Phase.CUT_REQUESTED,
        SnapshotEvent.REQUEST_CUT: Phase.CUT_REQUESTED,
        SnapshotEvent.TICKETS_USED: Phase.CUT_DUE,
        SnapshotEvent.AWAIT_CUT: Phase.CUT_REQUESTED,
    },
    Phase.CUT_DUE: {
        SnapshotEvent.OPEN: Phase.CUT_DUE,
        SnapshotEvent.REQUEST_CUT: Phase.CUT_DUE,
        SnapshotEvent.AWAIT_CUT: Phase.CUT_DUE,
        SnapshotEvent.ANNOUNCE: Phase.CUT_ANNOUNCED,
        SnapshotEvent.ANNOUNCE_FINAL: Phase.FINAL_CUT_ANNOUNCED,
    },
    Phase.CUT_ANNOUNCED: {
        SnapshotEvent.OPEN: Phase.CUT_ANNOUNCED,
        SnapshotEvent.REQUEST_CUT: Phase.CUT_ANNOUNCED,
        SnapshotEvent.AWAIT_CUT: Phase.CUT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.CUT_COPIED,
        SnapshotEvent.RESUME: Phase.TRAINING,
    },
    Phase.CUT_COPIED: {
        SnapshotEvent.OPEN: Phase.CUT_COPIED,
        SnapshotEvent.REQUEST_CUT: Phase.CUT_COPIED,
        SnapshotEvent.AWAIT_CUT: Phase.CUT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.CUT_COPIED,
        SnapshotEvent.RESUME: Phase.TRAINING,
    },
    Phase.FINAL_CUT_ANNOUNCED: {
        SnapshotEvent.OPEN: Phase.FINAL_CUT_ANNOUNCED,
        SnapshotEvent.REQUEST_CUT: Phase.FINAL_CUT_ANNOUNCED,
        SnapshotEvent.AWAIT_CUT: Phase.CUT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.FINAL_CUT_COPIED,
        SnapshotEvent.RESUME: Phase.DRAINED,
    },
    Phase.FINAL_CUT_COPIED: {
        SnapshotEvent.OPEN: Phase.FINAL_CUT_COPIED,
        SnapshotEvent.REQUEST_CUT: Phase.FINAL_CUT_COPIED,
        SnapshotEvent.AWAIT_CUT: Phase.CUT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.FINAL_CUT_COPIED,
        SnapshotEvent.RESUME: Phase.DRAINED,
    },
    Phase.DRAINED: {
        SnapshotEvent.OPEN: Phase.DRAINED,
        SnapshotEvent.REQUEST_CUT: Phase.DRAINED,
        SnapshotEvent.AWAIT_CUT: Phase.CUT_DUE,
        SnapshotEvent.FINISH: Phase.FINISHED,
    },
    Phase.FINISHED: {
        SnapshotEvent.OPEN: Phase.FINISHED,
        SnapshotEvent.REQUEST_CUT: Phase.FINISHED,
        SnapshotEvent.FINISH: Phase.FINISHED,
    },
}
"""The phase that follows on an event. A saver that awaits a cut has not heard of the one under way."""


@dataclass
class SnapshotProtocol:
    """The phase of a job, and the steps at which its cuts are due.

    A request that its sender repeats, because a connection broke, changes nothing.

    Notes
    -----
    Each method raises a Refusal where the table does not have its event, or where the event concerns a cut of another
    step.
    """

    max_steps: int | None
    save_steps: int | None
    phase: Phase = field(default=Phase.OPENING, init=False)
    last_ticket_step: float = field(default=math.inf, init=False)
    """No ticket is given for an update after this step."""
    num_heard: int = field(default=0, init=False)
    """How many entries of the log every shard has heard of with the cuts that it copied."""
    uncommitted: Snapshot | None = field(default=None, init=False)
    """What every shard has copied, and of which no checkpoint is there yet, as far as the chief has told."""

    def __post_init__(self) -> None:
        self._snapshot_at: int | None = None
        self._resumed_step: int | None = None
        self._announced: Snapshot | None = None
        """The last one; a late push may be dropped after it."""
        self._plan_next(0)

    # Messages of the chief

    def restore(self, step: int) -> None:
        """Record that the job goes on from a cut of `step`."""
        self._move(SnapshotEvent.RESTORE)
        self._plan_next(step)

    def open(self) -> None:
        """Let training begin."""
        self._move(SnapshotEvent.OPEN)

    def request_snapshot(self) -> None:
        """Make a cut as soon as the tickets given are used; one that is under way will do."""
        self._move(SnapshotEvent.REQUEST_CUT)

    def await_snapshot(self) -> None:
        """Record that the saver has not heard of a cut that is under way: it will be announced again."""
        self._move(SnapshotEvent.AWAIT_CUT)

    def snapshot(self, step: int, global_step: int) -> None:
        """Record that the shards copy the cut of `step`."""
        self._move(SnapshotEvent.SNAPSHOT, step, global_step)

    def resume(self, step: int, global_step: int) -> bool:
        """Leave the cut of `step`, which every shard has copied or need not copy; return False for a repeat."""
        if step == self._resumed_step and SnapshotEvent.RESUME not in TRANSITIONS[self.phase]:
            return False
        is_copied = self.phase in (Phase.CUT_COPIED, Phase.FINAL_CUT_COPIED)
        self._move(SnapshotEvent.RESUME, step, global_step)
        self._resumed_step = step
        if is_copied and (snapshot := self._announced) is not None:
            self.num_heard = snapshot.log_start + len(snapshot.log)
            self.uncommitted = snapshot
        self._plan_next(step)
        return True

    def committed(self, step: int) -> None:
        """Record that the checkpoint of `step` is there."""
        if self.uncommitted is not None and self.uncommitted.step <= step:
            self.uncommitted = None

    def finish(self) -> None:
        """Record that the final checkpoint is committed; the job is over."""
        self._move(SnapshotEvent.FINISH)

    # What the job finds

    def tickets_used(self, global_step: int, *, is_done: bool) -> None:
        """Record that no ticket is out, and whether none would be given any more: a cut may be due."""
        if is_done or global_step == self._snapshot_at or self.phase is Phase.CUT_REQUESTED:
            self._move(SnapshotEvent.TICKETS_USED)

    def announce(self, snapshot: Snapshot, *, is_final: bool) -> None:
        """Record that the saver hears of `cut`."""
        self._move(SnapshotEvent.ANNOUNCE_FINAL if is_final else SnapshotEvent.ANNOUNCE)
        self._announced = snapshot

    # Inside

    def _move(self, event: SnapshotEvent, step: int = 0, global_step: int = 0) -> None:
        """Go on to what the table has; refuse what it does not have, or what concerns a cut of another step."""
        following = TRANSITIONS[self.phase].get(event)
        if following is None or step != global_step:
            raise Refusal("phase", event.format(step=step, global_step=global_step, phase=self.phase))
        self.phase = following

    def _plan_next(self, global_step: int) -> None:
        if self.save_steps is not None:
            self._snapshot_at = (global_step // self.save_steps + 1) * self.save_steps
        self.last_ticket_step = min(math.inf if end is None else end for end in (self.max_steps, self._snapshot_at))
