"""Slots for the roles that were lost and restart, as soon as some are free."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from distributed import Client

from psflow.ps_runtime.cluster.admission import await_taken, free_now
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId

SlotOf = Callable[[RoleId], str | None]
"""Where a role restarts that has a place of its own; None while that is not free."""

LOOK_SECS = 1.0
"""Between two looks for a free slot."""
NO_SLOT_SECS = 300.0
"""For a slot, once the job does not train without it, or no other role of it is left."""
SAY_AGAIN_SECS = 30.0
"""Until somebody reads whom the job misses, and between two such lines."""
BY_HAND = "start the process of each of them again by its command"
BARRED = "another job is starting on the cluster, or goes back, and until its roles are there no other one takes slots"
AFTER = "let that one start first, or end it"
ANYWHERE = "add a Dask worker to the cluster, or end what takes its threads or kills its processes"

logger = logging.getLogger(__name__)


class Restarting:
    """Gives each role that waits for a life a free slot of the cluster; never waits for one itself."""

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        submit: Callable[[RoleId, str], None],
        host: str | None,
        slot_of: SlotOf | None = None,
        shortage: Callable[[], str] = str,
    ) -> None:
        self.reserved: Sequence[str] = ()
        self._client = client
        self._supervisor = supervisor
        self._submit = submit
        self._slot_of = slot_of
        self._shortage = shortage
        self._host = host
        self._is_barred = False
        """Whether another job had the turn to choose slots at the last look."""
        self._next_look = Deadline(0)
        self._has_placed_all = False
        self._no_slot: Deadline | None = None
        """Since only roles are left that wait."""
        self._say: Deadline | None = None
        """Until the next line on who waits; None while nobody does."""

    def place(self, check: Callable[[], None], *, has_lock: bool = False) -> None:
        """Look for free slots, once a second, if somebody waits; the others train on meanwhile.

        Raises
        ------
        WaitTimeoutError
            If nobody trains, too few workers do, or nobody is left at all, and no slot was free for five minutes; or if
            the scheduler is silent for as long.
        """
        with self._supervisor.lock:
            due, all_started = self._supervisor.due(), self._supervisor.all_started()
        if not due:
            self._no_slot = self._say = None
        # a slot that this job was given is not given once more: the scheduler knows by then that it is taken
        if not due or not (self._next_look.has_passed or (self._has_placed_all and all_started)):
            return
        self._next_look = Deadline(LOOK_SECS)
        self._has_placed_all = self._place(due, check, has_lock=has_lock) == len(due)
        if self._has_placed_all:
            self._no_slot = self._say = None
        else:
            self._give_up_late()
            self._say_late()

    def _place(self, due: Sequence[RoleId], check: Callable[[], None], *, has_lock: bool) -> int:
        """Have roles begin as far as there are slots for them, the first ones first; return how many do."""
        if self._slot_of is not None:
            places = [(role, slot) for role in due if (slot := self._slot_of(role)) is not None]
            for role, slot in places:
                self._submit(role, slot)
            return len(places)
        with self._supervisor.lock:
            # of cancelled lives, and of those to come: the scheduler takes their slots for free
            busy = [*self._supervisor.busy_slots(), *self.reserved]
        with free_now(self._client, check, self._host, has_lock=has_lock) as slots:
            self._is_barred = slots is None
            slots = slots or []
            best = slots[: len(due) + len(busy)]
            free = list((Counter(best) - Counter(busy)).elements())[: len(due)]
            for role, slot in zip(due, free, strict=False):
                self._submit(role, slot)
            await_taken(self._client, slots, free, check)
        return len(free)

    def _give_up_late(self) -> None:
        with self._supervisor.lock:
            others_train = self._supervisor.is_training and self._supervisor.slots() and not self._shortage()
        if others_train:
            self._no_slot = None
        elif self._no_slot is None:
            self._no_slot = Deadline(NO_SLOT_SECS)
        elif self._no_slot.has_passed:
            raise self._too_late()

    def _too_late(self) -> WaitTimeoutError:
        state = ""
        with self._supervisor.lock:
            is_trained = self._supervisor.is_trained
        if is_trained:  # only the evaluator is missed then: the others are let go
            state = "training is complete, and its checkpoints are kept; to evaluate the rest, "
        detail = f"{self._reasons}{state}resume the job, and {self._remedy}"
        return WaitTimeoutError(self._names, f"begin {self._where}", NO_SLOT_SECS, detail)

    def _say_late(self) -> None:
        """Log now and then for whom the job waits, or may wait in the end."""
        if self._say is None:
            self._say = Deadline(SAY_AGAIN_SECS)
        elif self._say.has_passed:
            self._say = Deadline(SAY_AGAIN_SECS)
            line = "%s: missing, and waiting to begin %s; %s%s"
            logger.warning(line, self._names, self._where, self._reasons, self._remedy)

    @property
    def _reasons(self) -> str:
        with self._supervisor.lock:
            said = [self._shortage(), BARRED if self._is_barred else ""]
        return "".join(f"{reason}; " for reason in said if reason)

    @property
    def _names(self) -> str:
        with self._supervisor.lock:
            return ", ".join(map(str, self._supervisor.waiting()))

    @property
    def _where(self) -> str:
        return "on a free slot" if self._slot_of is None else "in a process of its own"

    @property
    def _remedy(self) -> str:
        if self._slot_of is not None:
            return BY_HAND
        return AFTER if self._is_barred else ANYWHERE
