"""Whose run this is: what a run in Prefect or MLflow says of the process that runs it, so that strays can be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from ps_runtime.checkpoint.job_file import JobFile
from ps_runtime.checkpoint.process import ProcessId
from ps_runtime.errors import CheckpointError

__all__ = ["JOB_ID", "KIND", "MODEL_DIR", "OWNER", "TRAIN", "is_stray", "owner_text", "trains"]

OWNER = "psflow.owner"
JOB_ID = "psflow.job_id"
MODEL_DIR = "psflow.model_dir"
KIND, TRAIN = "psflow.kind", "train"
"""What a run does; one that does not say it trains."""


def owner_text() -> str:
    """Return this process as text, for the tag or label `OWNER`."""
    return json.dumps(asdict(ProcessId.current()))


def trains(notes: Mapping[str, object]) -> bool:
    """Return whether the run with these tags or labels is that of a job, and not one about a job, such as a replay."""
    return notes.get(KIND, TRAIN) == TRAIN


def is_stray(notes: Mapping[str, object]) -> bool:
    """Return whether the process that a run names is gone for certain.

    Parameters
    ----------
    notes : mapping
        Tags or labels of the run.

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


def _owner(text: object) -> ProcessId | None:
    try:
        return ProcessId(**json.loads(str(text)))
    except (TypeError, ValueError):
        return None


def _is_left(notes: Mapping[str, object], owner: ProcessId) -> bool:
    """Return whether nobody owns the job of a run by now, or somebody else does; runs about a job own none."""
    model_dir, job_id = notes.get(MODEL_DIR), notes.get(JOB_ID)
    if not model_dir or not job_id or not trains(notes):
        return False
    job = JobFile(str(model_dir))
    try:
        record = job.read()
        if record is None or record.job_id != job_id:
            return False
        return job.refusal() is None or (record.owner is not None and record.owner.process != owner)
    except (CheckpointError, OSError, ValueError):
        return False
