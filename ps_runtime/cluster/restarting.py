"""Slots for the roles that were lost and begin again, as soon as some are free."""

from __future__ import annotations

from collections.abc import Callable

from distributed import Client

from psflow.ps_runtime.cluster.admission import AdmissionPolicy, admission
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CapacityError, WaitTimeoutError
from psflow.ps_runtime.specs.roles import RoleId

__all__ = ["Restarting", "SlotOf"]

SlotOf = Callable[[RoleId], str | None]
"""Where a role begins again that has a place of its own; None while that is not free."""

LOOK_SECS = 1.0
"""Between two looks for a free slot."""
NO_SLOT_SECS = 60.0
"""For a slot, once no other role of the job is left."""


class Restarting:
    """Gives each role that waits for a new life a free slot of the cluster; never waits for one itself.

    Parameters
    ----------
    client : Client
        Of the cluster.
    supervisor : Supervisor
        Knows who waits.
    submit : callable
        Has a role begin on a slot.
    host : str or None
        Where the slots have to be; None: anywhere.
    slot_of : callable, optional
        Where roles have places of their own; else any free slot will do.
    """

    def __init__(
        self,
        client: Client,
        supervisor: Supervisor,
        submit: Callable[[RoleId, str], None],
        host: str | None,
        slot_of: SlotOf | None = None,
    ) -> None:
        self._client = client
        self._supervisor = supervisor
        self._submit = submit
        self._slot_of = slot_of
        self._policy = AdmissionPolicy(0, waits_for_slots=False, host=host)
        self._next_look = Deadline(0)
        self._no_slot: Deadline | None = None
        """Since only roles are left that wait."""

    def place(self, check: Callable[[], None]) -> None:
        """Look for free slots, once a second, if somebody waits; the others train on meanwhile.

        Parameters
        ----------
        check : callable
            Called now and then; raises to end the search.

        Raises
        ------
        WaitTimeoutError
            If nobody else is left, and no slot was free for a minute.
        """
        waiting = self._supervisor.waiting()
        if not waiting or not self._next_look.has_passed:
            return
        self._next_look = Deadline(LOOK_SECS)
        # one free slot at a time: the scheduler may not have heard yet that the one before is taken
        due = waiting if self._slot_of is not None else waiting[:1]
        num_placed = sum(self._is_placed(role, check) for role in due)
        if num_placed == len(due):
            self._no_slot = None
        else:
            self._give_up_late()

    def _is_placed(self, role: RoleId, check: Callable[[], None]) -> bool:
        """Have a role begin, if there is a slot for it."""
        if self._slot_of is not None:
            if (slot := self._slot_of(role)) is not None:
                self._submit(role, slot)
            return slot is not None
        try:
            with admission(self._client, 1, self._policy, check) as [slot]:
                self._submit(role, slot)
        except (CapacityError, WaitTimeoutError):  # or another job is starting
            return False
        return True

    def _give_up_late(self) -> None:
        if self._supervisor.slots():
            self._no_slot = None
        elif self._no_slot is None:
            self._no_slot = Deadline(NO_SLOT_SECS)
        elif self._no_slot.has_passed:
            waiting = ", ".join(map(str, self._supervisor.waiting()))
            raise WaitTimeoutError(waiting, "find a free slot to begin again", NO_SLOT_SECS)
