"""Implements the snapshot protocol as a state machine: the phases of a job, their events, and when a snapshot is due.

The table is the protocol: an event without an entry for a phase is refused, and nothing has changed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.server.instructions import Phase, Refusal


class SnapshotEvent(StrEnum):
    """An event that may change the phase of a job. Its value says why it is refused if the table lacks it."""

    RESTORE = "a restore is possible only at the start; the job is {phase}"
    OPEN = "the job cannot be opened; it is {phase}"
    REQUEST_SNAPSHOT = "no snapshot can be requested; the job is {phase}"
    TICKETS_USED = "no snapshot can be due; the job is {phase}"
    AWAIT_SNAPSHOT = "no further snapshot comes; the job is {phase}"
    ANNOUNCE = "no snapshot can be announced; the job is {phase}"
    ANNOUNCE_FINAL = "no final snapshot can be announced; the job is {phase}"
    SNAPSHOT = "no snapshot of step {step} is due; the job is at step {global_step}, {phase}; await the next snapshot"
    RESUME = (
        "no snapshot of step {step} is under way; the job is at step {global_step}, {phase}; await the next snapshot"
    )
    FINISH = "the job cannot finish yet; it is {phase}"


TRANSITIONS: Mapping[Phase, Mapping[SnapshotEvent, Phase]] = {
    Phase.OPENING: {
        SnapshotEvent.RESTORE: Phase.OPENING,
        SnapshotEvent.OPEN: Phase.TRAINING,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.OPENING_SNAPSHOT_REQUESTED,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.OPENING,
    },
    Phase.OPENING_SNAPSHOT_REQUESTED: {
        SnapshotEvent.RESTORE: Phase.OPENING_SNAPSHOT_REQUESTED,
        SnapshotEvent.OPEN: Phase.SNAPSHOT_REQUESTED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.OPENING_SNAPSHOT_REQUESTED,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.OPENING_SNAPSHOT_REQUESTED,
    },
    Phase.TRAINING: {
        SnapshotEvent.OPEN: Phase.TRAINING,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.SNAPSHOT_REQUESTED,
        SnapshotEvent.TICKETS_USED: Phase.SNAPSHOT_DUE,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.TRAINING,
    },
    Phase.SNAPSHOT_REQUESTED: {
        SnapshotEvent.OPEN: Phase.SNAPSHOT_REQUESTED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.SNAPSHOT_REQUESTED,
        SnapshotEvent.TICKETS_USED: Phase.SNAPSHOT_DUE,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.SNAPSHOT_REQUESTED,
    },
    Phase.SNAPSHOT_DUE: {
        SnapshotEvent.OPEN: Phase.SNAPSHOT_DUE,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.SNAPSHOT_DUE,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.SNAPSHOT_DUE,
        SnapshotEvent.ANNOUNCE: Phase.SNAPSHOT_ANNOUNCED,
        SnapshotEvent.ANNOUNCE_FINAL: Phase.FINAL_SNAPSHOT_ANNOUNCED,
    },
    Phase.SNAPSHOT_ANNOUNCED: {
        SnapshotEvent.OPEN: Phase.SNAPSHOT_ANNOUNCED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.SNAPSHOT_ANNOUNCED,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.SNAPSHOT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.SNAPSHOT_COPIED,
        SnapshotEvent.RESUME: Phase.TRAINING,
    },
    Phase.SNAPSHOT_COPIED: {
        SnapshotEvent.OPEN: Phase.SNAPSHOT_COPIED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.SNAPSHOT_COPIED,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.SNAPSHOT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.SNAPSHOT_COPIED,
        SnapshotEvent.RESUME: Phase.TRAINING,
    },
    Phase.FINAL_SNAPSHOT_ANNOUNCED: {
        SnapshotEvent.OPEN: Phase.FINAL_SNAPSHOT_ANNOUNCED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.FINAL_SNAPSHOT_ANNOUNCED,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.SNAPSHOT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.FINAL_SNAPSHOT_COPIED,
        SnapshotEvent.RESUME: Phase.DRAINED,
    },
    Phase.FINAL_SNAPSHOT_COPIED: {
        SnapshotEvent.OPEN: Phase.FINAL_SNAPSHOT_COPIED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.FINAL_SNAPSHOT_COPIED,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.SNAPSHOT_DUE,
        SnapshotEvent.SNAPSHOT: Phase.FINAL_SNAPSHOT_COPIED,
        SnapshotEvent.RESUME: Phase.DRAINED,
    },
    Phase.DRAINED: {
        SnapshotEvent.OPEN: Phase.DRAINED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.DRAINED,
        SnapshotEvent.AWAIT_SNAPSHOT: Phase.SNAPSHOT_DUE,
        SnapshotEvent.FINISH: Phase.FINISHED,
    },
    Phase.FINISHED: {
        SnapshotEvent.OPEN: Phase.FINISHED,
        SnapshotEvent.REQUEST_SNAPSHOT: Phase.FINISHED,
        SnapshotEvent.FINISH: Phase.FINISHED,
    },
}
"""The phase that follows an event. A saver that awaits a snapshot does not know of the one under way."""


@dataclass
class SnapshotProtocol:
    """The phase of a job, and the steps at which its snapshots are due.

    A request that is repeated after a broken connection changes nothing.

    Notes
    -----
    Each method raises a Refusal where the table does not have its event, or for a snapshot of another step.
    """

    max_steps: int | None
    save_steps: int | None
    phase: Phase = field(default=Phase.OPENING, init=False)
    last_ticket_step: float = field(default=math.inf, init=False)
    """No ticket is given for an update after this step."""
    num_heard: int = field(default=0, init=False)
    """Entries of the log that every shard has received with the snapshots that it copied."""
    uncommitted: Snapshot | None = field(default=None, init=False)
    """Copied by every shard, but without a checkpoint yet, as far as the chief has reported."""

    def __post_init__(self) -> None:
        self._snapshot_at: int | None = None
        self._resumed_step: int | None = None
        self._announced: Snapshot | None = None
        """The last one; a late push may be dropped after it."""
        self._plan_next(0)

    # Messages of the chief

    def restore(self, step: int) -> None:
        """Record that the job continues from a snapshot of `step`."""
        self._move(SnapshotEvent.RESTORE)
        self._plan_next(step)

    def open(self) -> None:
        """Let training begin."""
        self._move(SnapshotEvent.OPEN)

    def request_snapshot(self) -> None:
        """Make a snapshot as soon as the tickets given are used; one that is under way suffices."""
        self._move(SnapshotEvent.REQUEST_SNAPSHOT)

    def await_snapshot(self) -> None:
        """Record that the saver does not know of a snapshot under way, which will be announced again."""
        self._move(SnapshotEvent.AWAIT_SNAPSHOT)

    def snapshot(self, step: int, global_step: int) -> None:
        """Record that the shards copy the snapshot of `step`."""
        self._move(SnapshotEvent.SNAPSHOT, step, global_step)

    def resume(self, step: int, global_step: int) -> bool:
        """Leave the snapshot of `step`, which every shard has copied or need not copy; return False for a repeat."""
        if step == self._resumed_step and SnapshotEvent.RESUME not in TRANSITIONS[self.phase]:
            return False
        is_copied = self.phase in (Phase.SNAPSHOT_COPIED, Phase.FINAL_SNAPSHOT_COPIED)
        self._move(SnapshotEvent.RESUME, step, global_step)
        self._resumed_step = step
        if is_copied and (snapshot := self._announced) is not None:
            self.num_heard = snapshot.log_start + len(snapshot.log)
            self.uncommitted = snapshot
        self._plan_next(step)
        return True

    def committed(self, step: int) -> None:
        """Record that the checkpoint of `step` exists."""
        if self.uncommitted is not None and self.uncommitted.step <= step:
            self.uncommitted = None

    def finish(self) -> None:
        """Record that the final checkpoint is committed; the job is over."""
        self._move(SnapshotEvent.FINISH)

    # Findings of the job

    def tickets_used(self, global_step: int, *, is_done: bool) -> None:
        """Record that no ticket is out, and whether none would be given any more: a snapshot may be due."""
        if is_done or global_step == self._snapshot_at or self.phase is Phase.SNAPSHOT_REQUESTED:
            self._move(SnapshotEvent.TICKETS_USED)

    def announce(self, snapshot: Snapshot, *, is_final: bool) -> None:
        """Record that `snapshot` is announced to the saver."""
        self._move(SnapshotEvent.ANNOUNCE_FINAL if is_final else SnapshotEvent.ANNOUNCE)
        self._announced = snapshot

    # Inside

    def _move(self, event: SnapshotEvent, step: int = 0, global_step: int = 0) -> None:
        """Change the phase by the table; refuse an event without an entry, or a snapshot of another step."""
        following = TRANSITIONS[self.phase].get(event)
        if following is None or step != global_step:
            raise Refusal("phase", event.format(step=step, global_step=global_step, phase=self.phase))
        self.phase = following

    def _plan_next(self, global_step: int) -> None:
        if self.save_steps is not None:
            self._snapshot_at = (global_step // self.save_steps + 1) * self.save_steps
        self.last_ticket_step = min(math.inf if end is None else end for end in (self.max_steps, self._snapshot_at))
