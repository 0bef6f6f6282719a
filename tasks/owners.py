"""Whose run this is: what a run in Prefect or MLflow says of its process, so that orphaned runs are found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from psflow.ps_runtime.checkpoint.job_file import JobFile, JobRecord
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import CheckpointError
from psflow.ps_runtime.estimator.attempt import ENDED_STEP

OWNER = "psflow.owner"
JOB_ID = "psflow.job_id"
MODEL_DIR = "psflow.model_dir"
KIND, TRAIN = "psflow.kind", "train"
"""What a run does; one that does not say it trains."""

TO_COMPLETE = (
    "run the same command again to complete the MLflow run from model_dir (checkpoints, evaluations, the best export, "
    "metrics, tags and plots)"
)
"""What to do about an MLflow run that lacks something."""


def owner_text(process: ProcessId | None = None) -> str:
    """Return a process as text, for the tag or label `OWNER`; default: this one."""
    return json.dumps(asdict(process or ProcessId.current()))


def trains(notes: Mapping[str, object]) -> bool:
    """Return whether the run with these tags or labels is that of a job, and not one about a job, such as a replay."""
    return notes.get(KIND, TRAIN) == TRAIN


def is_orphaned(notes: Mapping[str, object]) -> bool:
    """Return whether the process that a run names is gone for certain.

    Notes
    -----
    Of a process on another host, the lease of the job in its model_dir decides, if that can be read here; else the run
    is left alone.
    """
    owner = _owner(notes.get(OWNER))
    if owner is None:
        return False
    is_alive = owner.is_alive()
    return not is_alive if is_alive is not None else _is_left(notes, owner)


def ended_step(notes: Mapping[str, object]) -> int | None:
    """Return the step at which the training of a run ended; None if it has not, or its job cannot be read here."""
    record = _job(notes)
    step: int | None = None if record is None else record.facts.get(ENDED_STEP)
    return step


def _job(notes: Mapping[str, object]) -> JobRecord | None:
    """Return what the model_dir of a run says of its job, if it is that job, and the run that of a training."""
    model_dir, job_id = notes.get(MODEL_DIR), notes.get(JOB_ID)
    if not model_dir or not job_id or not trains(notes):
        return None
    try:
        record = JobFile(str(model_dir)).read()
    except (CheckpointError, OSError, ValueError):
        return None
    return record if record is not None and record.job_id == job_id else None


def _owner(text: object) -> ProcessId | None:
    try:
        return ProcessId(**json.loads(str(text)))
    except (TypeError, ValueError):
        return None


def _is_left(notes: Mapping[str, object], owner: ProcessId) -> bool:
    """Return whether nobody owns the job of a run by now, or somebody else does; runs about a job own none."""
    record = _job(notes)
    if record is None:
        return False
    if record.owner is not None and record.owner.process != owner:
        return True
    try:
        return JobFile(str(notes[MODEL_DIR])).refusal() is None
    except (CheckpointError, OSError, ValueError):
        return False
