"""Checks a model_dir before a job begins in it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fsspec.utils import get_protocol

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.records import (
    EVALUATIONS,
    EvaluationLog,
    read_finished,
    read_waiting_metrics,
    read_waiting_notes,
)
from psflow.ps_runtime.checkpoint.store import CheckpointStore, copy_checkpoint
from psflow.ps_runtime.errors import ModelDirError, UsageError
from psflow.ps_runtime.model.best import BestRecord
from psflow.ps_runtime.protocol.job_state import Snapshot
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.specs.run_config import absolute, is_local
from psflow.ps_runtime.specs.variables import ModelSpec

MAX_DIFFERENCES, NUM_SHOWN = 8, 4
"""Up to this many differences count as a change, and all are shown; more count as another training."""


WRITABLE = ("s3", "s3a", "memory")
"""Kinds of URL where one process at a time can be the owner of a job."""


def check_location(model_dir: str) -> None:
    """Refuse a model_dir that can neither become a local directory, nor is on S3. Asks no store.

    Raises UsageError.
    """
    if not is_local(model_dir):
        if (protocol := get_protocol(model_dir)) in WRITABLE:
            return
        what = (
            f"model_dir {shown_path(model_dir)}: a job is written to a local directory or to s3://, got {protocol}://"
        )
        raise UsageError((f"{what}; use s3://, or a directory on a mount that all hosts share",))
    there = _nearest(model_dir)
    if not os.path.isdir(there):
        raise UsageError((f"model_dir {model_dir}: expected a directory, but {there} is a file; choose another",))


def check_model_dir(model_dir: str, model: ModelSpec) -> None:
    """Refuse a model_dir that holds another model, damage, or the remains of a job, or that is not writable.

    Raises
    ------
    CheckpointError
        If a manifest or another JSON file in it is damaged, naming that file.
    ModelDirError
        With each difference to the latest checkpoint, what is damaged in it, or each file that remains without a
        checkpoint.
    UsageError
        If it is local and not a directory, or not writable.
    """
    check_location(model_dir)
    if is_local(model_dir):
        _check_writable(model_dir)
    store = CheckpointStore(model_dir)
    latest = store.latest()
    _check_records(model_dir)
    if latest is None:
        _check_empty(store.files)
        return
    manifest = store.manifest(latest)
    _check_whole(store, manifest)
    differences = manifest.model.differences(model)
    if differences:
        raise ModelDirError(
            (
                f"{model_dir} holds checkpoints of another model (the latest is of step {latest}); "
                "choose another model_dir, or restore the model:",
                *shortened(differences),
            )
        )


def shortened(differences: Sequence[str]) -> list[str]:
    """Return the lines of differences to show: all of a change, the first ones of another training.

    Examples
    --------
    >>> shortened(["a", "b"]), shortened([str(n) for n in range(33)])
    (['a', 'b'], ['0', '1', '2', '3', 'and 29 more'])
    """
    if len(differences) <= MAX_DIFFERENCES:
        return list(differences)
    return [*differences[:NUM_SHOWN], f"and {len(differences) - NUM_SHOWN} more"]


def lost_job(model_dir: str) -> str | None:
    """Return a warning if `model_dir` has checkpoints but no ``job.json``; else None."""
    latest = CheckpointStore(model_dir).latest()
    if latest is None or JobFile(model_dir).read() is not None:
        return None
    return (
        f"{model_dir} has checkpoints, the latest of step {latest}, but no job.json: a new job continues from there; "
        "its MLflow run is a new one, without the training metrics of earlier steps; to continue the run of the "
        "earlier job, put its job.json back"
    )


def _check_writable(model_dir: str) -> None:
    """Refuse a local directory that does not exist and cannot be made, or that is not writable.

    The probe file is anonymous where the system supports that, and is removed at once elsewhere.
    """
    there = _nearest(model_dir)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        reason = f"{there} is not writable: {error.strerror}; correct its permissions, or choose another"
        raise UsageError((f"model_dir {model_dir}: {reason}",)) from None


def _nearest(model_dir: str) -> str:
    """Return the path of a local `model_dir`, or of its nearest ancestor that exists."""
    path = absolute(model_dir)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _check_records(model_dir: str) -> None:
    """Raise CheckpointError naming a damaged JSON file of `model_dir` outside its checkpoints."""
    files = FileStore(model_dir)
    JobFile(model_dir).read()
    read_finished(model_dir)
    EvaluationLog(model_dir).read()
    read_waiting_metrics(model_dir)
    read_waiting_notes(model_dir)
    for exporter in files.names("export"):
        BestRecord.read(files.location(f"export/{exporter}"))


def _check_whole(store: CheckpointStore, manifest: Manifest) -> None:
    latest = manifest.step
    faults = store.wrong_sizes(latest)
    try:
        Snapshot.from_facts(manifest.job)
    except ValueError as error:
        faults.append(f"manifest.json: {error}")
    if faults:
        before = [step for step in store.steps() if step < latest]
        remedy = f"remove that directory to resume from step {before[-1]}" if before else "choose another model_dir"
        raise ModelDirError(
            (
                f"the latest checkpoint, {store.path(latest)}, is damaged: {', '.join(faults)}; "
                f"restore its files, or {remedy}",
            )
        )


def _check_empty(files: FileStore) -> None:
    """Refuse a directory with results of another training, which would be taken for those of this one."""
    best = [f"export/{exporter}/best.json" for exporter in files.names("export")]
    results = [name for name in (EVALUATIONS, *best) if files.size(name) is not None]
    if results:
        left = [*results, *(name for name in ("job.json",) if files.size(name) is not None)]
        raise ModelDirError(
            (
                f"{files.url} has no readable checkpoint, but results of an earlier training: {', '.join(left)}; "
                "remove these files, restore the checkpoints, or choose another model_dir",
            )
        )


FORKED_FROM = "forked_from"
"""Its key in job.json."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The directories that a fork copies from and to.

    Raises ModelDirError if the parent has no checkpoint, or the other directory holds anything else.
    """

    parent_dir: str
    model_dir: str

    def __post_init__(self) -> None:
        if absolute(self.parent_dir) == absolute(self.model_dir):
            raise ModelDirError((f"--fork names the model_dir itself, {self.model_dir}; choose another directory",))
        if CheckpointStore(self.parent_dir).latest() is None:
            raise ModelDirError((f"{self.parent_dir} has no checkpoint to fork from; train it first",))
        if not self.is_begun and (self._holds_a_job or CheckpointStore(self.model_dir).latest() is not None):
            raise ModelDirError(
                (f"{self.model_dir} holds a job that is not a fork of {self.parent_dir}; choose another directory",)
            )

    @property
    def is_begun(self) -> bool:
        """Whether the new job exists."""
        record = JobFile(self.model_dir).read()
        return record is not None and record.facts.get(FORKED_FROM, {}).get("job_id") == self._parent_id

    def check(self, model: ModelSpec) -> None:
        """Refuse checkpoints of another model; see `check_model_dir`."""
        check_model_dir(self.parent_dir, model)

    def facts(self) -> dict[str, Any]:
        """Return the entries of a fork for job.json; none if the job exists already."""
        if self.is_begun and CheckpointStore(self.model_dir).latest() is not None:
            return {}
        parent = JobFile(self.parent_dir).read()
        return {
            FORKED_FROM: {
                "job_id": self._parent_id,
                "run_id": None if parent is None else parent.run_id,
                "model_dir": absolute(self.parent_dir),
                "step": CheckpointStore(self.parent_dir).latest(),
            }
        }

    def copy(self, step: int) -> None:
        """Copy the checkpoint of `step`, unless the new job has one already. Only the job owner may call this."""
        target = CheckpointStore(self.model_dir)
        if target.latest() is None:
            copy_checkpoint(CheckpointStore(self.parent_dir), target, step, "fork")

    @property
    def _parent_id(self) -> str:
        record = JobFile(self.parent_dir).read()
        return "" if record is None else record.job_id

    @property
    def _holds_a_job(self) -> bool:
        return JobFile(self.model_dir).read() is not None
