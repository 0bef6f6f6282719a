"""The owner of the job of a trial as a process of its own, which leaves in files what came of it."""

from __future__ import annotations

import json
import logging
import pickle
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from psflow.ps_runtime.cluster.admission import AdmissionPolicy
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.launch import ClusterJob
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.roles.events import Event
from psflow.ps_runtime.signals import sigterm_leaves
from tests.chaos.gates import Gates
from tests.chaos.oracles import wrong_reports
from tests.chaos.program import attempt_of
from tests.chaos.trials import Trial

SLOT_SECS = 120.0
"""For the slots of an attempt, which an earlier one may hold still."""


@dataclass(frozen=True)
class Files:
    """What an attempt leaves.

    Parameters
    ----------
    events : Path
        What the owner has heard of the roles, and found out: one event after the other.
    end : Path
        What the job failed of, as text, and what is wrong with the reports of the roles; not there if it was killed.
    """

    events: Path
    end: Path

    @classmethod
    def of(cls, directory: Path, number: int) -> Files:
        """Return those of the n-th attempt."""
        return cls(directory / f"events-{number}", directory / f"end-{number}.json")

    def read_events(self) -> list[Event]:
        """Return the events so far."""
        events: list[Event] = []
        if self.events.exists():
            with self.events.open("rb") as log, suppress(EOFError, pickle.UnpicklingError):  # the last may be torn
                while True:
                    events.append(pickle.load(log))
        return events

    def read_end(self) -> tuple[str, list[str]] | None:
        """Return the error and the violations, each empty if there is none; None if the owner has left no word."""
        if not self.end.exists():
            return None
        error, found = json.loads(self.end.read_text())
        return error, found


def own(trial: Trial, model_dir: Path, gates: Gates, address: str, files: Files) -> None:
    """Run the job of a trial on the cluster at `address`, to its end or until it fails."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # it is no role
    logging.disable()  # what came of the job is in the files
    error, found = "", list[str]()
    with sigterm_leaves(), files.events.open("ab", buffering=0) as log:

        def write(event: Event) -> None:
            log.write(pickle.dumps(event))  # in one piece, as the owner may be killed

        try:
            attempt, program = attempt_of(trial, model_dir, gates)
            with (
                open_cluster(address, 0, warn=lambda fault: None) as client,
                attempt,
                ClusterJob(client, attempt.job(program), write) as run,
            ):
                run.start(AdmissionPolicy(SLOT_SECS))
                found = list(wrong_reports(run.join()))
        except (PsflowError, OSError) as failure:
            error = f"{type(failure).__name__}: {failure}"
    files.end.write_text(json.dumps([error, found]))
