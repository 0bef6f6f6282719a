"""What a job leaves in its model_dir for those who come later: that it finished, and what was evaluated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.checkpoint.metrics_json import metrics_from_json, metrics_to_json
from psflow.ps_runtime.checkpoint.typed_json import UnixTime, as_kind, from_json
from psflow.ps_runtime.errors import CheckpointError

__all__ = [
    "ALL_STEPS",
    "EVALUATIONS",
    "EvaluationLog",
    "EvaluationRecord",
    "FinishedMarker",
    "clear_finished",
    "measured",
    "nothing_left",
    "read_finished",
    "write_finished",
]

FINISHED = "finished.json"
EVALUATIONS = "evaluations.jsonl"
LOCK = ".evaluations.lock"


ALL_STEPS = "all steps are done"
"""Why training has ended, where nothing ended it before."""


@dataclass(frozen=True, slots=True)
class FinishedMarker:
    """Training has ended at `final_step`, for `reason`; the checkpoint of that step comes right after this marker."""

    final_step: int
    reason: str


def nothing_left(begun_at: int, max_steps: int | None) -> str | None:
    """Return, for people, that a training that began at a step was at its end by then; None if it was not."""
    if max_steps is None or begun_at < max_steps:
        return None
    return f"nothing was trained: the model was at step {begun_at:,} already, and max_steps is {max_steps:,}"


def write_finished(model_dir: str, final_step: int, reason: str, fence: Fence = open_fence) -> None:
    """Mark the job of `model_dir` as finished, unless `fence` raises."""
    text = json.dumps(asdict(FinishedMarker(final_step, reason))) + "\n"
    FileStore(model_dir, fence).put(FINISHED, text.encode())


def read_finished(model_dir: str) -> FinishedMarker | None:
    """Return the marker that `write_finished` left; None if there is none; CheckpointError if it is damaged."""
    files = FileStore(model_dir)
    if files.size(FINISHED) is None:
        return None
    try:
        return as_kind(FinishedMarker, from_json(files.read(FINISHED)), "marker")
    except ValueError as error:
        raise CheckpointError(
            files.path(FINISHED), f"damaged: {error}; remove the file to continue training"
        ) from error


def clear_finished(model_dir: str) -> None:
    """Remove the marker, so that a job may train on. Idempotent."""
    FileStore(model_dir).remove(FINISHED)


def measured(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return `metrics` without ``global_step``, which is among them and says only of which checkpoint they are.

    Examples
    --------
    >>> measured({"loss": 0.5, "global_step": 300})
    {'loss': 0.5}
    """
    return {name: value for name, value in metrics.items() if name != "global_step"}


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """One checkpoint, evaluated."""

    name: str
    global_step: int
    checkpoint_saved_at: UnixTime
    metrics: Mapping[str, float]
    evaluated_at: UnixTime
    input_digest: str = ""

    @classmethod
    def from_facts(cls, facts: Any) -> EvaluationRecord:
        """Read a line of the log; ValueError, with the key, where it cannot be."""
        if not isinstance(facts, Mapping):
            raise ValueError(f"evaluation: expected an object, got {facts!r}")
        plain = {"input_digest": "", **facts}  # lines of earlier releases have none
        if "metrics" in plain:
            plain["metrics"] = {}
        return replace(as_kind(cls, plain, "evaluation"), metrics=metrics_from_json(facts["metrics"]))


class EvaluationLog:
    """``model_dir/evaluations.jsonl``: every evaluation of a model_dir, a line each.

    Notes
    -----
    An evaluation counts once its line is whole; a torn last line is as if it had never been. So an evaluator appends
    after its exporters have run, and repeats what it did not come to append. Where a checkpoint was removed and its
    step trained again, the later line of the step is the one that counts.
    """

    def __init__(self, model_dir: str, fence: Fence = open_fence) -> None:
        self._files = FileStore(model_dir, fence)

    def add(self, evaluation: EvaluationRecord) -> bool:
        """Append `evaluation` unless that checkpoint is there under that name already; return whether it was new.

        Several processes of a host may add at once: one of them finds it new.
        """
        with self._files.locked(LOCK):
            known = self.checkpoints(evaluation.name)
            is_new = known.get(evaluation.global_step) != evaluation.checkpoint_saved_at
            if is_new:
                self.append(evaluation)
            return is_new

    def append(self, evaluation: EvaluationRecord) -> None:
        """Append `evaluation`, durably. Several processes of a host may append at once."""
        facts = asdict(evaluation) | {"metrics": metrics_to_json(evaluation.metrics)}
        self._files.append(EVALUATIONS, json.dumps(facts, allow_nan=False).encode() + b"\n")

    def read(self) -> list[EvaluationRecord]:
        """Return the evaluations in the order of their lines; of each name and step the newest.

        Raises
        ------
        CheckpointError
            If a line is damaged, with its number.
        """
        if self._files.size(EVALUATIONS) is None:
            return []
        lines = self._files.read(EVALUATIONS).split(b"\n")
        evaluations: dict[tuple[str, int], EvaluationRecord] = {}
        for number, line in enumerate(lines[:-1], start=1):
            try:
                evaluation = EvaluationRecord.from_facts(from_json(line))
            except ValueError as error:
                raise CheckpointError(
                    self._files.path(EVALUATIONS), f"line {number} is damaged: {error}; remove that line"
                ) from error
            key = evaluation.name, evaluation.global_step
            evaluations.pop(key, None)
            evaluations[key] = evaluation
        return list(evaluations.values())

    def evaluated(self, name: str) -> set[int]:
        """Return the steps that the EvalSpec `name` has evaluated."""
        return set(self.checkpoints(name))

    def checkpoints(self, name: str) -> dict[int, float]:
        """Return the step and ``saved_at`` of each checkpoint that the EvalSpec `name` has evaluated."""
        return self.by_name().get(name, {})

    def by_name(self) -> dict[str, dict[int, float]]:
        """Return what `checkpoints` does, for the name of each EvalSpec that has evaluated anything."""
        found: dict[str, dict[int, float]] = {}
        for evaluation in self.read():
            found.setdefault(evaluation.name, {})[evaluation.global_step] = evaluation.checkpoint_saved_at
        return found
