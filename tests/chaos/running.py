"""Runs a trial: its job on a cluster of its own, and the fault in its phase."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from distributed import Client

from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.roles.events import Event, FirstStep, RoleEnded, RoleStarted
from psflow.ps_runtime.specs.roles import Role, RoleId
from tests.chaos.gates import Gates
from tests.chaos.oracles import violations, wrong_reports
from tests.chaos.program import CHIEF, job_of
from tests.chaos.trials import NUM_WORKERS, Fault, Phase, Trial

LIMIT_SECS = 180.0
"""For a job; one takes 2 s where the machine has nothing else to do."""
STOPPED_SECS = 2.0
NUM_OTHER_ROLES = 2
"""The chief and the evaluator."""


@dataclass
class Outcome:
    """What came of a trial."""

    trial: Trial
    has_hit: bool = False
    """Whether the fault hit its phase."""
    num_kills: int = 0
    recovery_secs: list[float] = field(default_factory=list)
    """From the kill until a new life worked."""
    violations: list[str] = field(default_factory=list)


class LateError(Exception):
    """A job does not come to its end."""


def run_trial(trial: Trial, directory: Path) -> Outcome:
    """Run a trial and judge it. Blocks. `directory` is empty, and is not removed."""
    (directory / "gates").mkdir()
    outcome = Outcome(trial)
    gates = Gates(directory / "gates", trial.phase)
    if trial.phase is Phase.FINISH:
        gates.note_recovery()  # else training would wait, and never come to its end
    model_dir, events = directory / "job", list[Event]()
    try:
        with open_cluster(None, _num_slots(trial), LIMIT_SECS) as client:
            with _started(trial, model_dir, gates, client, events) as run:
                fault = _Fault(trial, gates, client, run, events, outcome)
                reports = run.join(_limited(fault.look))
            fault.look()  # a last time
            outcome.violations += wrong_reports(reports)
    except (PsflowError, LateError) as error:
        outcome.violations.append(f"{type(error).__name__}: {error}")
    if outcome.has_hit and not outcome.violations:
        outcome.violations += violations(trial, model_dir, events)
    return outcome


def _num_slots(trial: Trial) -> int:
    return trial.num_ps + NUM_WORKERS + NUM_OTHER_ROLES


@contextmanager
def _started(trial: Trial, model_dir: Path, gates: Gates, client: Client, events: list[Event]) -> Iterator[ClusterJob]:
    estimator, train_spec, eval_spec, program = job_of(trial, model_dir, gates)
    with (
        Attempt(estimator, train_spec, eval_spec, num_ps=trial.num_ps, num_workers=NUM_WORKERS) as attempt,
        ClusterJob(client, attempt.job(program), events.append) as run,
    ):
        run.start(AdmissionPolicy(LIMIT_SECS))
        yield run


def _limited(look: Callable[[], None]) -> Callable[[], None]:
    deadline = time.monotonic() + LIMIT_SECS

    def check() -> None:
        if time.monotonic() >= deadline:
            raise LateError(f"the job did not end within {LIMIT_SECS:g} s")
        look()

    return check


class _Fault:
    """Makes the fault happen once its phase is reached, and notes how the roles come back."""

    def __init__(
        self, trial: Trial, gates: Gates, client: Client, run: ClusterJob, events: list[Event], outcome: Outcome
    ) -> None:
        self._trial = trial
        self._gates = gates
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
        self._hit = {
            role: psutil.Process(self._pids[slots[role]]) for role in self._trial.target.roles if role in slots
        }
        self._outcome.has_hit = len(self._hit) == len(self._trial.target.roles) and not ended & set(map(str, self._hit))
        self.happened_at = time.time()
        for process in self._hit.values():
            process.send_signal(self._trial.fault.value)
        if self._trial.fault is Fault.KILL:
            self._outcome.num_kills = len(self._hit)
            psutil.wait_procs(self._hit.values(), timeout=LIMIT_SECS)
        self._gates.open()

    def _look_back(self) -> None:
        now = time.time()
        if self._trial.fault is Fault.STOP:
            if now - self.happened_at < STOPPED_SECS:
                return
            for process in self._hit.values():
                process.resume()
        elif self._trial.loses_roles:
            if self._trial.target.goes_back:
                self._gates.note_recovery()  # nobody comes to the end before: and who waits for it does not leave
            returned = [self._returned(role) for role in self._hit]
            if None in returned:
                return
            self._outcome.recovery_secs += [at - self.happened_at for at in returned if at is not None]
        self._is_over = True
        self._gates.note_recovery()

    def _returned(self, role: RoleId) -> float | None:
        """Return when a new life of a role began to work; None before."""
        if self._trial.target.goes_back:
            steps = [event for event in self._events if isinstance(event, FirstStep) and event.time > self.happened_at]
            return min((event.time for event in steps if event.role == CHIEF), default=None)
        if role.role is Role.WORKER:
            lives = self._gates.begun(str(role))
            return min((at for pid, at in lives.items() if pid != self._hit[role].pid), default=None)
        starts = [event.time for event in self._events if isinstance(event, RoleStarted) and event.role == str(role)]
        return starts[1] if len(starts) > 1 else None
