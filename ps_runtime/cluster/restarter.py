"""Finds free slots for lost roles that restart."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from distributed import Client

from psflow.ps_runtime.cluster.admission import Grow, await_taken, free_now
from psflow.ps_runtime.cluster.placement import SLOT_TIMEOUT_SECS, FreeSlots, Placement
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId

SlotOf = Callable[[RoleId], str | None]
"""Returns where a role with a fixed process restarts; None while that is not free."""

LOOK_SECS = 1.0
"""Between two looks for a free slot."""
SPARE_LOOK_SECS = 5.0
"""The same, where the job lacks no role."""
SAY_AGAIN_SECS = 30.0
"""Before the log names the missing roles, and between two such lines."""
MANUAL = "start each of their processes again by its command"
ANOTHER_STARTS = "another job starts or rolls back on the cluster, and takes precedence until its roles have slots"
AFTER = "let that job start first, or end it"
ANYWHERE = "add a Dask worker to the cluster, or end the tasks that take its threads or kill its processes"

logger = logging.getLogger(__name__)


class Restarter:
    """Gives each waiting role a free slot of the cluster, without blocking for one."""

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        submit: Callable[[RoleId, str], None],
        host: str | None,
        slot_of: SlotOf | None = None,
        shortage: Callable[[], str] = str,
        version_faults: Callable[[Sequence[str]], Mapping[str, str]] = lambda slots: {},
        placement: Placement = "spread",
        slot_timeout_secs: float = SLOT_TIMEOUT_SECS,
        request: Grow = lambda num_slots, check: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reserved: Sequence[str] = ()
        self._client = client
        self._supervisor = supervisor
        self._submit = submit
        self._slot_of = slot_of
        self._shortage = shortage
        self._version_faults = version_faults
        self._placement: Placement = placement
        self._slot_timeout_secs = slot_timeout_secs
        self._request = request
        self._clock = clock
        """That of the supervisor."""
        self._others: Mapping[str, str] = {}
        """Free slots with other versions at the last look, and what differs there."""
        self._host = host
        self._another_starts = False
        """Whether another job held the lock on slots at the last look."""
        self._next_look = Deadline(0)
        self._has_placed_all = False
        self._no_slot: Deadline | None = None
        """Since only waiting roles are left."""
        self._say: Deadline | None = None
        """Until the next log line on waiting roles; None while there are none."""

    def place(self, check: Callable[[], None], *, has_lock: bool = False) -> None:
        """Look for free slots, once a second, if roles wait; the others train on meanwhile.

        Raises WaitTimeoutError if training has stopped, has too few workers, or has no role left, and no slot was free
        for `slot_timeout_secs`; or if the scheduler is silent for as long.
        """
        with self._supervisor.lock:
            due, all_started = self._supervisor.due(), self._supervisor.all_started()
            lacks_any = bool(self._supervisor.lacking())
        if not lacks_any:
            self._no_slot = self._say = None
        if not due:
            self._request(len(self.reserved), check)
        # a slot that this job got is not given twice: by then the scheduler lists it as taken
        if not due or not (self._next_look.has_passed or (self._has_placed_all and all_started)):
            return
        self._next_look = Deadline(LOOK_SECS if lacks_any else SPARE_LOOK_SECS)
        num_placed = self._place(due, check, has_lock=has_lock)
        self._request(len(due) - num_placed, check)
        self._has_placed_all = num_placed == len(due)
        if self._has_placed_all or not lacks_any:
            self._no_slot = self._say = None
        else:
            self._give_up_late()
            self._say_late()

    def _place(self, due: Sequence[RoleId], check: Callable[[], None], *, has_lock: bool) -> int:
        """Start roles as far as there are slots for them, in order; return how many start."""
        if self._slot_of is not None:
            places = {role: slot for role in due if (slot := self._slot_of(role)) is not None}
            for role, slot in places.items():
                self._submit(role, slot)
            return len(places)
        with self._supervisor.lock:
            # of cancelled incarnations, and of those to come: the scheduler counts their slots as free
            busy = [*self._supervisor.busy_slots(), *self.reserved]
            others = self._supervisor.slots()
        with free_now(self._client, check, self._host, has_lock=has_lock) as found:
            self._another_starts = found is None
            slots = found or FreeSlots([])
            self._others = self._version_faults(slots.addresses)
            fitting = slots.without(slot for slot in slots.addresses if slot in self._others)
            places = fitting.without(busy).assigned(due, self._placement, others)
            for role, slot in places.items():
                self._submit(role, slot)
            await_taken(self._client, slots, list(places.values()), check)
        return len(places)

    def _give_up_late(self) -> None:
        with self._supervisor.lock:
            others_train = self._supervisor.is_training and self._supervisor.slots() and not self._shortage()
        if others_train:
            self._no_slot = None
        elif self._no_slot is None:
            self._no_slot = Deadline(self._slot_timeout_secs)
        elif self._no_slot.has_passed:
            raise self._too_late()

    def _too_late(self) -> WaitTimeoutError:
        state = ""
        with self._supervisor.lock:
            is_trained = self._supervisor.is_trained
        if is_trained:  # only the evaluator is missing then: the others are abandoned
            state = "training is complete, and its checkpoints are kept; to evaluate the rest, "
        detail = f"{self._reasons}{state}resume the job, and {self._remedy}"
        return WaitTimeoutError(self._names, f"begin {self._where}", self._slot_timeout_secs, detail)

    def _say_late(self) -> None:
        """Log periodically which roles the job waits for."""
        if self._say is None:
            self._say = Deadline(SAY_AGAIN_SECS)
        elif self._say.has_passed:
            self._say = Deadline(SAY_AGAIN_SECS)
            line = "%s: missing, waiting to begin %s; %s%s"
            logger.warning(line, self._names, self._where, self._reasons, self._remedy)

    @property
    def _reasons(self) -> str:
        with self._supervisor.lock:
            said = [
                self._shortage(),
                ANOTHER_STARTS if self._another_starts else "",
                *self._others.values(),
                *self._lost(),
            ]
        return "".join(f"{reason}; " for reason in said if reason)

    def _lost(self) -> Iterator[str]:
        """Yield what was lost of the roles that the job waits for, each with its Dask worker, and how long ago."""
        now = self._clock()
        for role in self._supervisor.lacking():
            if (losses := self._supervisor.losses(role)) and not losses[-1].is_rollback:
                yield f"{role} was lost {now - losses[-1].at:.0f} s ago, as {losses[-1].error.error}"

    @property
    def _names(self) -> str:
        with self._supervisor.lock:
            return ", ".join(map(str, self._supervisor.lacking()))

    @property
    def _where(self) -> str:
        return "on a free slot" if self._slot_of is None else "in a process of its own"

    @property
    def _remedy(self) -> str:
        if self._slot_of is not None:
            return MANUAL
        return AFTER if self._another_starts else ANYWHERE
