"""A new job that begins with the latest checkpoint of another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.checkpoint.copying import copy_checkpoint
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import ModelDirError
from psflow.ps_runtime.estimator.model_dir import check_model_dir
from psflow.ps_runtime.specs.directories import absolute
from psflow.ps_runtime.specs.variables import ModelSpec

__all__ = ["FORKED_FROM", "Fork"]

FORKED_FROM = "forked_from"
"""What job.json calls it."""


@dataclass(frozen=True, slots=True)
class Fork:
    """From where to where.

    Raises
    ------
    ModelDirError
        If the first has no checkpoint, or the second holds anything else.
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
        """Return what job.json must say of the new job, if it is to begin now: nothing if it has begun."""
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
        """Copy the checkpoint of `step`, unless the new job has one already. Only its owner may call this."""
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
