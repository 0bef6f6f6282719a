"""Records in a model_dir for later attempts: the end of training, evaluations, and data that MLflow still lacks."""

from __future__ import annotations

import json
import logging
import math
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
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
"""The reason of a training that made all its steps."""


@dataclass(frozen=True, slots=True)
class FinishedMarker:
    """Training ended at `final_step`, for `reason`; the checkpoint of that step follows this marker."""

    final_step: int
    reason: str


def nothing_left(begun_at: int, max_steps: int | None) -> str | None:
    """Return a message if a training that began at a step had no steps left; else None."""
    if max_steps is None or begun_at < max_steps:
        return None
    return f"nothing was trained: the model was at step {begun_at:,} already, and max_steps is {max_steps:,}"


def write_finished(model_dir: str, final_step: int, reason: str, fence: Fence = open_fence) -> None:
    """Mark the job of `model_dir` as finished, unless `fence` raises."""
    text = json.dumps(asdict(FinishedMarker(final_step, reason))) + "\n"
    FileStore(model_dir, fence).put(FINISHED, text.encode())


def read_finished(model_dir: str) -> FinishedMarker | None:
    """Return the marker of `write_finished`; None without one; CheckpointError if it is damaged."""
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
    """Remove the marker, so that a job may continue training. Idempotent."""
    FileStore(model_dir).remove(FINISHED)


def measured(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return `metrics` without ``global_step``, which only names their checkpoint.

    Examples
    --------
    >>> measured({"loss": 0.5, "global_step": 300})
    {'loss': 0.5}
    """
    return {name: value for name, value in metrics.items() if name != "global_step"}


@dataclass(frozen=True, slots=True)
class EvaluationRecord:
    """The evaluation of one checkpoint."""

    name: str
    global_step: int
    checkpoint_saved_at: UnixTime
    metrics: Mapping[str, float]
    evaluated_at: UnixTime
    input_digest: str = ""

    @classmethod
    def from_facts(cls, facts: Any) -> EvaluationRecord:
        """Read a line of the log; ValueError, with the key, if it is invalid."""
        if not isinstance(facts, Mapping):
            raise ValueError(f"evaluation: expected an object, got {facts!r}")
        plain = {"input_digest": "", **facts}  # lines of earlier releases lack it
        if "metrics" in plain:
            plain["metrics"] = {}
        return replace(as_kind(cls, plain, "evaluation"), metrics=metrics_from_json(facts["metrics"]))


class EvaluationLog:
    """``model_dir/evaluations.jsonl``: the evaluations of a model_dir, one per line.

    Notes
    -----
    An evaluation counts once its line is complete; a torn last line is ignored. An evaluator therefore appends after
    its exporters have run, and repeats evaluations that it did not append. Where a checkpoint was removed and its
    step trained again, the later line of the step counts.
    """

    def __init__(self, model_dir: str, fence: Fence = open_fence) -> None:
        self._files = FileStore(model_dir, fence)

    @property
    def nbytes(self) -> int:
        """Size of the file; 0 if there is none. It grows with each evaluation."""
        return self._files.size(EVALUATIONS) or 0

    def add(self, evaluation: EvaluationRecord) -> bool:
        """Append `evaluation` unless it is recorded for that checkpoint and name already; return whether it was new.

        Several processes of a host may add at once: it is new for one of them.
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
        """Return the evaluations in line order; for each name and step only the newest.

        Raises CheckpointError if a line is damaged, with its number.
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
        """Return the result of `checkpoints` for each EvalSpec with evaluations, by name."""
        found: dict[str, dict[int, float]] = {}
        for evaluation in self.read():
            found.setdefault(evaluation.name, {})[evaluation.global_step] = evaluation.checkpoint_saved_at
        return found


LOOK_SECS = 1.0
"""Least time between two looks for new evaluations."""


class RecentEvaluations:
    """The metrics of a model_dir's evaluations by name and step, as of at most a second ago."""

    def __init__(self, model_dir: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = EvaluationLog(model_dir)
        self._clock = clock
        self._looked_at, self._nbytes = -math.inf, 0
        self._known: dict[str, dict[int, Mapping[str, float]]] = {}

    def __call__(self, name: str) -> Mapping[int, Mapping[str, float]]:
        """Return the metrics of the evaluations `name`, by global_step; CheckpointError if a line is damaged."""
        if (now := self._clock()) - self._looked_at >= LOOK_SECS:
            self._looked_at = now
            if (nbytes := self._log.nbytes) != self._nbytes:
                self._nbytes, self._known = nbytes, {}
                for evaluation in self._log.read():
                    self._known.setdefault(evaluation.name, {})[evaluation.global_step] = evaluation.metrics
        return self._known.get(name, {})


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
        """Read a line of the file; ValueError, with the key, if it is invalid."""
        if not isinstance(facts, Mapping):
            raise ValueError(f"metrics: expected an object, got {facts!r}")
        plain = {**facts, "values": {}} if "values" in facts else facts  # its NaN is a str, which `as_kind` refuses
        return replace(as_kind(cls, plain, "metrics"), values=metrics_from_json(facts["values"]))


def write_waiting_metrics(model_dir: str, waiting: Sequence[WaitingMetrics]) -> None:
    """Write `waiting`, replacing the content of the file."""
    lines = [json.dumps(asdict(metrics) | {"values": metrics_to_json(metrics.values)}) + "\n" for metrics in waiting]
    FileStore(model_dir).put(WAITING_METRICS, "".join(lines).encode())


def read_waiting_metrics(model_dir: str) -> list[WaitingMetrics]:
    """Return the content of the file, in order; a torn last line is dropped, with a warning.

    Raises CheckpointError if a line is damaged, with its number.
    """
    files = FileStore(model_dir)
    if files.size(WAITING_METRICS) is None:
        return []
    *lines, rest = files.read(WAITING_METRICS).split(b"\n")
    path = files.path(WAITING_METRICS)
    if rest:
        _log.warning("%s: the last line is incomplete; its metrics are lost", path)
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
    """Write `notes`, replacing the content of the file."""
    files = {name: b64encode(content).decode() for name, content in notes.files.items()}
    facts = {"run_id": notes.run_id, "tags": dict(notes.tags), "files_base64": files}
    FileStore(model_dir).put(WAITING_NOTES, json.dumps(facts).encode())


def read_waiting_notes(model_dir: str) -> WaitingNotes | None:
    """Return the content of the file; None without one.

    Raises CheckpointError if it is damaged.
    """
    files = FileStore(model_dir)
    if files.size(WAITING_NOTES) is None:
        return None
    try:
        facts = as_kind(_Facts, from_json(files.read(WAITING_NOTES)), "notes")
        contents = {name: b64decode(text, validate=True) for name, text in facts.files_base64.items()}
    except ValueError as error:
        remedy = "remove the file; the MLflow run will lack these tags and files"
        raise CheckpointError(files.path(WAITING_NOTES), f"damaged: {error}; {remedy}") from error
    return WaitingNotes(facts.run_id, facts.tags, contents)
