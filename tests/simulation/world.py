"""A cluster of slots, the processes on them, and the owner of the job, as `ClusterJob` is one on Dask."""

from __future__ import annotations

import itertools
from collections import Counter

from psflow.ps_runtime.cluster.incarnations import UserFault
from psflow.ps_runtime.cluster.supervisor import Supervisor
from psflow.ps_runtime.specs.roles import Role, RoleId, job_roles
from tests.failing_slots import lose_slots
from tests.simulation.processes import Evaluator, OwnError, Process
from tests.simulation.ps import Disk, Plan, PsProcess
from tests.simulation.trainers import Chief, Surroundings, Trainer

FIRST_INCARNATION = 65536
START_TIMEOUT_SECS = 60.0


class World:
    """Slots, processes, and an owner that hears of them late.

    Parameters
    ----------
    plan : Plan
        Of the job.
    num_spare : int
        Slots beyond those that the roles need.
    max_restarts : int
        As of the Supervisor.
    """

    def __init__(self, plan: Plan, num_spare: int, max_restarts: int) -> None:
        self.plan = plan
        self.disk = Disk(plan)
        self.roles = job_roles(plan.num_ps, plan.num_workers, evaluator=True)
        self.now = 0.0
        takes_over = plan.num_workers > 0 or plan.pipeline_depth == 0
        self.supervisor = Supervisor(
            self.roles, FIRST_INCARNATION, max_restarts, takes_over=takes_over, clock=lambda: self.now
        )
        self.slots = [f"slot-{index}" for index in range(len(self.roles) + num_spare)]
        self.gone: set[str] = set()
        """Slots whose process is gone."""
        self.untold: dict[str, bool] = {}
        """Those of which the owner has not heard, and whether they closed in order."""
        self.processes: list[Process] = []
        """All lives that the owner may still hear of, or that run."""
        self.present: dict[RoleId, Process] = {}
        """The last life of each role."""
        self.futures: dict[RoleId, Process] = {}
        """Those that the owner has not cancelled."""
        self.listening: dict[RoleId, PsProcess] = {}
        """Where the owner takes each ps to be."""
        self.num_told = Counter[RoleId]()
        self.told_missing: set[tuple[RoleId, int, int]] = set()
        self.around = Surroundings(self.kill, lambda: self.has_told_all, itertools.count())

    # what happens to processes

    def kill(self, slot: str, *, is_silent: bool = False, in_order: bool = False) -> None:
        """Have a slot be gone, with all that runs on it."""
        if slot in self.gone:
            return
        self.gone.add(slot)
        self.untold[slot] = in_order
        for process in self.processes:
            if process.slot == slot:
                process.kill(is_silent=is_silent)

    def bring_back(self, slot: str) -> None:
        """Have a slot return, of which the owner has heard that it was gone."""
        if slot in self.gone and slot not in self.untold:
            self.gone.remove(slot)

    def running(self, slot: str) -> list[Process]:
        return [process for process in self.processes if process.slot == slot and process.is_running]

    # what the owner hears

    @property
    def has_told_all(self) -> bool:
        """Whether the owner has heard all there is to hear."""
        return not self.untold and not any(process.events or process.outcome is not None for process in self.processes)

    @property
    def has_ended(self) -> bool:
        """Whether all roles have come to their end."""
        return len(self.present) == len(self.roles) and self.supervisor.all_ended()

    def hear_events(self, process: Process, number: int = 100) -> None:
        """Hear what a life tells."""
        for _ in range(min(number, len(process.events))):
            self._note(process, process.events.popleft())
        self._forget(process)

    def hear_outcome(self, process: Process) -> None:
        """Hear how a life has ended."""
        outcome, process.outcome = process.outcome, None
        if isinstance(outcome, BaseException):
            fault = UserFault(str(outcome), str(outcome)) if isinstance(outcome, OwnError) else None
            self.supervisor.fail(process.role, process.incarnation, outcome, fault)
        elif outcome is not None:
            self.supervisor.finish(process.role, process.incarnation, outcome)
        self._forget(process)

    def hear_losses(self) -> None:
        """Hear which slots are gone."""
        for slot, in_order in list(self.untold.items()):
            del self.untold[slot]
            lose_slots(self.supervisor, {slot}, in_order=in_order)

    def _note(self, process: Process, event: str) -> None:
        role, incarnation = process.role, process.incarnation
        match event:
            case "started":
                self.supervisor.start(role, incarnation)
            case "listening":
                if self.supervisor.is_current(role, incarnation):
                    assert isinstance(process, PsProcess)
                    self.listening[role] = process
                    self.supervisor.listen(role, incarnation)
            case "step":
                self.supervisor.step(role, incarnation)
            case "leaving":
                self.supervisor.begin_shutdown(role, incarnation)
            case "ended":
                self.supervisor.leave(role, incarnation)
            case _:
                raise AssertionError(event)

    def _forget(self, process: Process) -> None:
        if not (process.is_running or process.events or process.outcome is not None):
            self.processes = [other for other in self.processes if other is not process]

    # what the owner does

    def look(self) -> None:
        """Tell of losses, end what is to end, begin what may begin, as `ClusterJob` does several times a second."""
        self._tell_losses()
        for role in self.supervisor.to_end():
            if (process := self.futures.pop(role, None)) is not None:
                process.cancel()
        self._place(self.supervisor.due() or self._first_roles())
        for role, incarnation in self.supervisor.missing_workers():
            told = (role, incarnation, self.listening[self.roles[0]].incarnation)
            if told not in self.told_missing:
                self.told_missing.add(told)
                self._send_loss(role, incarnation)

    def _first_roles(self) -> list[RoleId]:
        """Return the roles that begin for the first time: the ps, then the others once every ps listens."""
        servers = [role for role in self.roles if role.role is Role.PS]
        if self.supervisor.waiting():
            return []
        if any(role not in self.present for role in servers):
            return [role for role in servers if role not in self.present]
        if all(map(self.supervisor.is_listening, servers)):
            return [role for role in self.roles if role not in self.present]
        return []

    def _place(self, due: list[RoleId]) -> None:
        """Have roles begin on slots that are free for the scheduler, but for those that cancelled lives still have."""
        taken = {process.slot for process in self.futures.values() if process.is_running}
        free = [slot for slot in self.slots if slot not in taken and slot not in self.gone - self.untold.keys()]
        free = [slot for slot in free if slot not in self.supervisor.busy_slots()]
        for role, slot in zip(due, free, strict=False):
            assert not any(process.has_begun for process in self.running(slot)), "the slot is taken"
            self._submit(role, slot)

    def _submit(self, role: RoleId, slot: str) -> None:
        incarnation = self.supervisor.place(role, slot)
        process = self._process(role, incarnation, slot)
        if slot in self.gone:
            process.kill(is_silent=False)
        self.processes.append(process)
        self.present[role] = self.futures[role] = process

    def _process(self, role: RoleId, incarnation: int, slot: str) -> Process:
        before = [process for process in self.processes if process.role == role and process.is_running]
        if role.role is Role.PS:
            assert not any(ps.has_begun for ps in before), "two lives of a ps"
            return PsProcess(role, incarnation, slot, self.disk)
        if role.role is Role.EVALUATOR:
            return Evaluator(role, incarnation, slot, self.disk)
        servers = [self.listening[other] for other in self.roles if other.role is Role.PS]
        if role.role is Role.CHIEF:
            assert not any(chief.has_begun for chief in before), "two lives of the chief"
            return Chief(role, incarnation, slot, self.disk, servers, self.around)
        return Trainer(role, incarnation, slot, self.disk, servers, self.around)

    def _tell_losses(self) -> None:
        for role in self.roles:
            losses = self.supervisor.losses(role)
            for loss in losses[self.num_told[role] :]:
                if not loss.is_rollback and not loss.rolls_back and role.trains:
                    self._send_loss(role, loss.incarnation)
            self.num_told[role] = len(losses)

    def _send_loss(self, role: RoleId, incarnation: int) -> None:
        """Send a message to ps-0, if there is one: it reads that later."""
        ps = self.present.get(self.roles[0])
        if isinstance(ps, PsProcess) and self.roles[0] in self.supervisor.slots() and ps.is_serving:
            ps.lost_replicas.append((role.replica, incarnation))
