"""Runs a trial whose fault hits roles: its job on a cluster that psflow starts, and the fault in its phase."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import assert_never

import psutil
from distributed import Client

from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.roles.events import Event, FirstStep, RoleEnded, RoleStarted
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.chaos.gates import Gates
from tests.chaos.messages import delay_next_message, disconnect, repeat_next_message
from tests.chaos.oracles import num_lost_steps, violations, wrong_losses, wrong_reports, wrong_ways_back
from tests.chaos.outcome import LIMIT_SECS, LateError, Outcome, limited
from tests.chaos.program import CHIEF, attempt_of, num_slots
from tests.chaos.trials import MESSAGE_FAULTS, STOPPED_SECS, Fault, Phase, Trial


def run_roles(trial: Trial, directory: Path) -> Outcome:
    """Run a trial and judge it. Blocks. `directory` is empty, and is not removed."""
    outcome, gates = Outcome(trial), Gates.of(trial, directory)
    model_dir, events = directory / "job", list[Event]()
    try:
        with open_cluster(None, num_slots(trial), LIMIT_SECS) as client:
            with _started(trial, model_dir, gates, client, events) as run:
                fault = _Fault(trial, gates, client, run, events, outcome)
                reports = run.join(limited(fault.look))
            fault.look()  # a last time
            outcome.violations += wrong_reports(reports)
            outcome.violations += [*wrong_losses(trial, events), *wrong_ways_back(trial, events)]
    except (PsflowError, LateError) as error:
        outcome.violations.append(f"{type(error).__name__}: {error}")
    outcome.num_lost_steps = num_lost_steps(events)
    if trial.fault in MESSAGE_FAULTS:
        outcome.has_hit &= gates.num_messages == len(trial.target.roles)
    if outcome.has_hit and not outcome.violations:
        outcome.violations += violations(trial, model_dir, events)
    return outcome


@contextmanager
def _started(trial: Trial, model_dir: Path, gates: Gates, client: Client, events: list[Event]) -> Iterator[ClusterJob]:
    attempt, program = attempt_of(trial, model_dir, gates)
    with attempt, ClusterJob(client, attempt.job(program), events.append) as run:
        run.start(AdmissionPolicy(LIMIT_SECS))
        yield run


class _Fault:
    """Makes the fault happen once its phase is reached, and notes how the roles come back."""

    def __init__(
        self, trial: Trial, gates: Gates, client: Client, run: ClusterJob, events: list[Event], outcome: Outcome
    ) -> None:
        self._trial = trial
        self._gates = gates
        self._client = client
        self._run = run
        self._events = events
        self._outcome = outcome
        self._pids: dict[str, int] = client.run(os.getpid)
        self._hit: dict[RoleId, psutil.Process] = {}
        self.happened_at = 0.0
        """In Unix time, as events have it."""
        self._is_over = False

    def look(self) -> None:
        """Do what is due; called several times a second."""
        if not self._hit and self._gates.is_reached and set(self._trial.target.roles) <= self._started():
            self._strike()
        elif self._hit and not self._is_over:
            self._look_back()

    def _started(self) -> set[RoleId]:
        """Return the roles that have started, and compute gradients where the phase is not before that."""
        started = {RoleId.parse(event.role) for event in self._events if isinstance(event, RoleStarted)}
        if self._trial.phase is Phase.START:
            return started
        return {role for role in started if role.role is not Role.WORKER or self._gates.begun(str(role))}

    def _strike(self) -> None:
        slots = self._run._supervisor.slots()
        ended = {event.role for event in self._events if isinstance(event, RoleEnded)}
        slots = {role: slots[role] for role in self._trial.target.roles if role in slots}
        self._hit = {role: psutil.Process(self._pids[slot]) for role, slot in slots.items()}
        self._outcome.has_hit = len(self._hit) == len(self._trial.target.roles) and not ended & set(map(str, self._hit))
        self.happened_at = time.time()
        self._harm(list(slots.values()))
        self._gates.open()

    def _harm(self, slots: list[str]) -> None:
        match self._trial.fault:
            case Fault.KILL:
                self._signal(signal.SIGKILL)
                self._outcome.num_kills = len(self._hit)
                psutil.wait_procs(self._hit.values(), timeout=LIMIT_SECS)
            case Fault.TERM:
                self._signal(signal.SIGTERM)
            case Fault.STOP | Fault.LONG_STOP:
                self._signal(signal.SIGSTOP)
            case Fault.DISCONNECT:
                self._outcome.has_hit &= all(self._client.run(disconnect, workers=slots).values())
            case Fault.REPEAT:
                self._client.run(repeat_next_message, self._gates, workers=slots)
            case Fault.DELAY:
                self._client.run(delay_next_message, self._gates, workers=slots)
            case Fault.FULL_DISK | Fault.READ_ONLY_DISK:
                raise AssertionError("no role has a disk")
            case unknown:
                assert_never(unknown)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._hit.values():
            process.send_signal(number)

    def _look_back(self) -> None:
        now = time.time()
        if self._trial.fault in STOPPED_SECS:
            if now - self.happened_at < STOPPED_SECS[self._trial.fault]:
                return
            for process in self._hit.values():
                process.resume()
        elif self._trial.loses_roles:
            if self._trial.rolls_back:
                self._gates.note_recovery()  # nobody comes to the end before: and who waits for it does not leave
            returned = [self._returned(role) for role in self._hit]
            if None in returned:
                return
            self._outcome.recovery_secs += [at - self.happened_at for at in returned if at is not None]
        self._is_over = True
        self._gates.note_recovery()

    def _returned(self, role: RoleId) -> float | None:
        """Return when a new life of a role began to work; None before."""
        if self._trial.rolls_back:
            steps = [event for event in self._events if isinstance(event, FirstStep) and event.time > self.happened_at]
            return min((event.time for event in steps if event.role == CHIEF), default=None)
        if role.trains:
            lives = self._gates.begun(str(role))
            return min((at for pid, at in lives.items() if pid != self._hit[role].pid), default=None)
        starts = [event.time for event in self._events if isinstance(event, RoleStarted) and event.role == str(role)]
        return starts[1] if len(starts) > 1 else None
