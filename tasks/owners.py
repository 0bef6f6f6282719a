"""Owner process of a run in Prefect or MLflow, by which orphaned runs are found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import PsflowError
from psflow.ps_runtime.estimator.attempt import ENDED_STEP

OWNER = "psflow.owner"
JOB_ID = "psflow.job_id"
MODEL_DIR = "psflow.model_dir"
KIND, TRAIN = "psflow.kind", "train"
"""Tag or label with the kind of a run; without it the run is a training."""

TO_COMPLETE = (
    "run the same command again to complete the MLflow run from model_dir (checkpoints, evaluations, the best export, "
    "metrics, tags and plots)"
)
"""Remedy for an incomplete MLflow run."""


def owner_text(process: ProcessId | None = None) -> str:
    """Return a process (default: this one) as text for the tag or label `OWNER`."""
    return json.dumps(asdict(process or ProcessId.current()))


def trains(notes: Mapping[str, object]) -> bool:
    """Return whether the run with these tags or labels trains a job, unlike a replay or an export."""
    return notes.get(KIND, TRAIN) == TRAIN


def is_orphaned(notes: Mapping[str, object]) -> bool:
    """Return whether the process of a run has certainly ended.

    Notes
    -----
    For a process on another host, the lease of the job in its model_dir decides, if it is readable here; else the run
    is not orphaned.
    """
    owner = _owner(notes.get(OWNER))
    if owner is None:
        return False
    is_alive = owner.is_alive()
    return not is_alive if is_alive is not None else _is_left(notes, owner)


def ended_step(notes: Mapping[str, object]) -> int | None:
    """Return the step at which the training of a run ended; None if it has not ended, or its job is unreadable here."""
    record = _job(notes)
    step: int | None = None if record is None else record.facts.get(ENDED_STEP)
    return step


def _job(notes: Mapping[str, object]) -> JobRecord | None:
    """Return the job in the model_dir of a run, if the run trains that job."""
    model_dir, job_id = notes.get(MODEL_DIR), notes.get(JOB_ID)
    if not model_dir or not job_id or not trains(notes):
        return None
    try:
        record = JobFile(str(model_dir)).read()
    except (PsflowError, OSError, ValueError):
        return None
    return record if record is not None and record.job_id == job_id else None


def _owner(text: object) -> ProcessId | None:
    try:
        return ProcessId(**json.loads(str(text)))
    except (TypeError, ValueError):
        return None


def _is_left(notes: Mapping[str, object], owner: ProcessId) -> bool:
    """Return whether the job of a run has no owner, or another one; only trainings own jobs."""
    record = _job(notes)
    if record is None:
        return False
    if record.owner is not None and record.owner.process != owner:
        return True
    try:
        return JobFile(str(notes[MODEL_DIR])).refusal() is None
    except (PsflowError, OSError, ValueError):
        return False
