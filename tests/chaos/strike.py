"""Makes the fault of a trial happen to what is around the roles, and notes how the job comes back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.process import BaseProcess

import psutil
from distributed import Client

from tests.chaos.disk import Disk
from tests.chaos.gates import Gates
from tests.chaos.nodes import CONNECT_SECS, Nodes
from tests.chaos.outcome import LIMIT_SECS, Outcome
from tests.chaos.trials import SIGNALS, STOPPED_SECS, Fault, Phase, Target, Trial

ROLE = "worker-0"
"""That a nanny takes with it."""


class Strike:
    """The fault of a trial.

    Parameters
    ----------
    trial : Trial
        With a target around the roles.
    gates : Gates
        Of the trial.
    nodes : Nodes
        The cluster of its job.
    owner : Process
        Of its job.
    disk : Disk or None
        Of its model_dir, if that has one.
    outcome : Outcome
        Takes what comes of it.
    """

    def __init__(
        self, trial: Trial, gates: Gates, nodes: Nodes, owner: BaseProcess, disk: Disk | None, outcome: Outcome
    ) -> None:
        self._trial = trial
        self._gates = gates
        self._nodes = nodes
        self._owner = owner
        self._disk = disk
        self._outcome = outcome
        self._hit: Sequence[psutil.Process] = ()
        self._lost_pid = 0
        """Of the role that a nanny takes with it."""
        self.happened_at = 0.0
        """In Unix time; 0 before."""
        self._is_over = False

    def look(self) -> None:
        """Do what is due; called several times a second."""
        if not self.happened_at and self._gates.is_reached and self._has_role and self._owner.is_alive():
            if (processes := self._processes()) is not None:
                self._strike(processes)
        elif self.happened_at and not self._is_over:
            self._look_back()

    @property
    def _has_role(self) -> bool:
        """Whether the role of a nanny is in the phase, too."""
        is_needed = self._trial.target is Target.NANNY and self._trial.phase is not Phase.START
        return not is_needed or bool(self._gates.begun(ROLE))

    def _strike(self, processes: Sequence[psutil.Process]) -> None:
        self._hit = processes
        self.happened_at = time.time()
        self._outcome.has_hit = self._disk is None or self._disk.harm(self._trial.fault)
        for process in self._hit:
            with suppress(psutil.NoSuchProcess):  # a Dask worker ends with its nanny
                process.send_signal(SIGNALS[self._trial.fault])
        if self._trial.fault is Fault.KILL:
            self._outcome.num_kills = 1
            psutil.wait_procs(self._hit, timeout=LIMIT_SECS)
        self._gates.open()

    def _processes(self) -> Sequence[psutil.Process] | None:
        """Return those that are hit; None while they are not there."""
        match self._trial.target:
            case Target.NANNY:
                return self._nanny()
            case Target.SCHEDULER:
                return (psutil.Process(self._nodes.scheduler.pid),)
            case Target.FLOW:
                return (psutil.Process(self._owner.pid),)
            case Target.DISK:
                return ()
            case other:
                raise AssertionError(f"{other} is a role")

    def _nanny(self) -> Sequence[psutil.Process] | None:
        """Return the nanny of the role and, if it is to be killed, its Dask worker; None while the role has neither."""
        with Client(self._nodes.address, timeout=CONNECT_SECS) as client:
            slots = [slot for slot, keys in client.processing().items() if any(f"-{ROLE}-" in key for key in keys)]
            if not slots:
                return None
            [slot] = slots
            nanny = psutil.Process(client.run(os.getpid, workers=[slot], nanny=True)[slot])
            worker = psutil.Process(client.run(os.getpid, workers=[slot])[slot])
        self._lost_pid = worker.pid
        return (nanny, worker) if self._trial.fault is Fault.KILL else (nanny,)

    def _look_back(self) -> None:
        if self._trial.fault in STOPPED_SECS:
            if time.time() - self.happened_at < STOPPED_SECS[self._trial.fault]:
                return
            for process in self._hit:
                process.send_signal(signal.SIGCONT)
        elif self._trial.loses_roles:
            lives = self._gates.begun(ROLE)
            returned = min((at for pid, at in lives.items() if pid != self._lost_pid), default=None)
            if returned is None:
                return
            self._outcome.recovery_secs.append(returned - self.happened_at)
        self._is_over = True
        self._gates.note_recovery()
