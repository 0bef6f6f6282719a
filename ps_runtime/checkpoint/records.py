"""Files in a model_dir for later attempts: the end of training, evaluations, and what MLflow has not taken."""

from __future__ import annotations

import json
import logging
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import Fence, open_fence
from psflow.ps_runtime.checkpoint.typed_json import UnixTime, as_kind, from_json, metrics_from_json, metrics_to_json
from psflow.ps_runtime.errors import CheckpointError

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


WAITING_METRICS = "waiting_metrics.jsonl"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitingMetrics:
    """Metrics of one step."""

    run_id: str
    step: int
    time: UnixTime
    values: Mapping[str, float]

    @classmethod
    def from_facts(cls, facts: Any) -> WaitingMetrics:
        """Read a line of the file; ValueError, with the key, where it cannot be."""
        if not isinstance(facts, Mapping):
            raise ValueError(f"metrics: expected an object, got {facts!r}")
        plain = {**facts, "values": {}} if "values" in facts else facts  # its NaN is a word, which `as_kind` refuses
        return replace(as_kind(cls, plain, "metrics"), values=metrics_from_json(facts["values"]))


def write_waiting_metrics(model_dir: str, waiting: Sequence[WaitingMetrics]) -> None:
    """Write `waiting`, and nothing of what the file held before."""
    lines = [json.dumps(asdict(metrics) | {"values": metrics_to_json(metrics.values)}) + "\n" for metrics in waiting]
    FileStore(model_dir).put(WAITING_METRICS, "".join(lines).encode())


def read_waiting_metrics(model_dir: str) -> list[WaitingMetrics]:
    """Return what the file holds, in its order; a torn last line is left out, with a warning.

    Raises
    ------
    CheckpointError
        If a line is damaged, with its number.
    """
    files = FileStore(model_dir)
    if files.size(WAITING_METRICS) is None:
        return []
    *lines, rest = files.read(WAITING_METRICS).split(b"\n")
    path = files.path(WAITING_METRICS)
    if rest:
        _log.warning("%s: the last line has no end; its metrics are lost", path)
    waiting = []
    for number, line in enumerate(lines, start=1):
        try:
            waiting.append(WaitingMetrics.from_facts(from_json(line)))
        except ValueError as error:
            raise CheckpointError(path, f"line {number} is damaged: {error}; remove that line") from error
    return waiting


WAITING_NOTES = "waiting_notes.json"


@dataclass(frozen=True, slots=True)
class WaitingNotes:
    """Notes of the MLflow run `run_id`: `tags` by name, and the content of `files` by path."""

    run_id: str
    tags: Mapping[str, str]
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class _Facts:
    run_id: str
    tags: Mapping[str, str]
    files_base64: Mapping[str, str]


def write_waiting_notes(model_dir: str, notes: WaitingNotes) -> None:
    """Write `notes`, and nothing of what the file held before."""
    files = {name: b64encode(content).decode() for name, content in notes.files.items()}
    facts = {"run_id": notes.run_id, "tags": dict(notes.tags), "files_base64": files}
    FileStore(model_dir).put(WAITING_NOTES, json.dumps(facts).encode())


def read_waiting_notes(model_dir: str) -> WaitingNotes | None:
    """Return what the file holds; None if there is none.

    Raises
    ------
    CheckpointError
        If it is damaged.
    """
    files = FileStore(model_dir)
    if files.size(WAITING_NOTES) is None:
        return None
    try:
        facts = as_kind(_Facts, from_json(files.read(WAITING_NOTES)), "notes")
        contents = {name: b64decode(text, validate=True) for name, text in facts.files_base64.items()}
    except ValueError as error:
        remedy = "remove the file: the MLflow run lacks these tags and files then"
        raise CheckpointError(files.path(WAITING_NOTES), f"damaged: {error}; {remedy}") from error
    return WaitingNotes(facts.run_id, facts.tags, contents)
