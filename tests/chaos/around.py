"""Runs a trial whose fault hits what is around the roles: the job goes on, or the next attempt at it does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from distributed import Client, Worker

from psflow.ps_runtime.roles.events import Event, FirstStep
from tests.chaos.disk import Disk, can_mount, small_disk
from tests.chaos.gates import POLL_SECS, Gates
from tests.chaos.nodes import CONNECT_SECS, Nodes, running, running_nodes
from tests.chaos.oracles import num_lost_steps, violations, wrong_losses
from tests.chaos.outcome import LateError, Outcome, limited
from tests.chaos.owner import Files, own
from tests.chaos.program import CHIEF, num_slots
from tests.chaos.strike import Strike
from tests.chaos.trials import DISK_ERRORS, Fault, Target, Trial

ROLES_END_SECS = 30.0
"""For the roles of an owner that is gone."""


def run_around(trial: Trial, directory: Path) -> Outcome:
    """Run a trial and judge it. Blocks. `directory` is empty, and is not removed."""
    outcome = Outcome(trial)
    place = directory / "disk"
    place.mkdir()
    if trial.target is Target.DISK and not can_mount():
        return outcome
    scene = _Scene(trial, directory, place / "job", outcome)
    try:
        with small_disk(place) if trial.target is Target.DISK else nullcontext() as disk:
            scene.run(disk)
            if outcome.has_hit and not outcome.violations:
                outcome.violations += violations(trial, scene.model_dir, scene.events())
    except LateError as error:
        outcome.violations.append(str(error))
    return outcome


class _Scene:
    """The attempts at the job of a trial, and what came of each."""

    def __init__(self, trial: Trial, directory: Path, model_dir: Path, outcome: Outcome) -> None:
        self.model_dir = model_dir
        self._trial = trial
        self._outcome = outcome
        self._directory = directory
        self._gates = Gates.of(trial, directory)
        self._attempts: list[Files] = []
        self._happened_at = 0.0

    def events(self) -> Sequence[Event]:
        """Return those of all attempts."""
        return [event for files in self._attempts for event in files.read_events()]

    def run(self, disk: Disk | None) -> None:
        """Make the attempts that the trial takes, until it is found to violate something."""
        num_workers = num_slots(self._trial) + (self._trial.target is Target.NANNY)  # which leaves no new Dask worker
        with running_nodes(num_workers) as nodes:
            self._first(nodes, disk)
            if not self._outcome.has_hit or not self._trial.ends_job:
                self._judge_last()
                return
            self._judge_first(nodes)
            if disk is not None:
                disk.heal()
            if self._trial.target is not Target.SCHEDULER:
                self._last(nodes)
        if self._trial.target is Target.SCHEDULER:
            with running_nodes(num_workers) as nodes:
                self._last(nodes)

    def _first(self, nodes: Nodes, disk: Disk | None) -> None:
        """Make the attempt that the fault hits."""
        files = self._next_files()
        with running(own, self._trial, self.model_dir, self._gates, nodes.address, files) as owner:
            strike = Strike(self._trial, self._gates, nodes, owner, disk, self._outcome)
            look = limited(strike.look)
            while owner.is_alive():
                look()
                owner.join(POLL_SECS)
            strike.look()  # a last time
        self._happened_at = strike.happened_at

    def _last(self, nodes: Nodes) -> None:
        """Make the attempt that goes on with a job that has ended."""
        if self._outcome.violations:
            return
        with running(own, self._trial, self.model_dir, self._gates, nodes.address, self._next_files()) as owner:
            look = limited(lambda: None)
            while owner.is_alive():
                look()
                owner.join(POLL_SECS)
        self._judge_last()
        steps = [event for event in self._attempts[-1].read_events() if isinstance(event, FirstStep)]
        self._outcome.recovery_secs += [event.time - self._happened_at for event in steps if event.role == CHIEF]

    def _next_files(self) -> Files:
        self._attempts.append(Files.of(self._directory, len(self._attempts) + 1))
        return self._attempts[-1]

    def _judge_first(self, nodes: Nodes) -> None:
        """Find out whether an attempt ended as it should that the fault has ended."""
        end = self._attempts[0].read_end()
        if self._trial.target is Target.FLOW:
            if self._trial.fault is Fault.KILL and end is not None:
                self._outcome.violations.append(f"a killed owner has left {end}")
            with self._gates.without_others():
                self._await_free_slots(nodes)
            return
        named = "the Dask scheduler" if self._trial.target is Target.SCHEDULER else DISK_ERRORS[self._trial.fault]
        if end is None or named not in end[0]:
            self._outcome.violations.append(f"the job ended with {end}, expected an error that names {named!r}")

    def _await_free_slots(self, nodes: Nodes) -> None:
        """Wait until the roles have ended of which the owner is gone."""
        deadline = time.monotonic() + ROLES_END_SECS
        with Client(nodes.address, timeout=CONNECT_SECS) as client:
            while any(client.run(num_tasks).values()):
                if time.monotonic() >= deadline:
                    self._outcome.violations.append(f"roles are there {ROLES_END_SECS:g} s after their owner")
                    return

    def _judge_last(self) -> None:
        files = self._attempts[-1]
        end = files.read_end()
        error, found = ("its owner ended without a word", []) if end is None else end
        self._outcome.violations += [error] * bool(error) + found
        if not self._outcome.violations:
            self._outcome.violations += wrong_losses(self._trial, files.read_events())
        self._outcome.num_lost_steps = num_lost_steps(self.events())


def num_tasks(dask_worker: Worker) -> int:
    """Return how many tasks run on a Dask worker, whether somebody waits for them or not."""
    return len(dask_worker.active_threads)
