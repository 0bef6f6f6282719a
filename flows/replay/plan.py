"""Plans a replay: checkpoints, inputs, and results that are already recorded."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from psflow.flows.parameters.configuration import CONFIG, has_config, read_config, read_settings, resolve
from psflow.flows.parameters.stages import CheckpointSource, EvaluateParameters
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.flows.planning.training_plan import shown_reading
from psflow.flows.reporting.recording import dataset_info
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.records import EvaluationRecord
from psflow.ps_runtime.checkpoint.selection import Available, Selection
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.errors import ConfigError, EvaluationFailedError, UsageError
from psflow.ps_runtime.estimator.model_dir import check_location
from psflow.ps_runtime.estimator.planning import plan_evaluations
from psflow.ps_runtime.model.evaluation import input_digest
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.redaction import without_secrets
from psflow.ps_runtime.specs.run_config import absolute
from psflow.tasks.evaluation.replay import ReplayRecord
from psflow.tasks.evaluation.worker import EvaluationJob, Failure, Outcome
from psflow.tasks.exports.exported import best_record
from psflow.tasks.tracking.child_run import TrainingRun, find_training_run
from psflow.tasks.tracking.points import evaluation_event
from psflow.tasks.tracking.run import DatasetInfo
from psflow.tasks.tracking.store import prepare_store
from psflow.tasks.tracking.tracker import Tracker


@dataclass(frozen=True, slots=True)
class FoundTraining:
    """A training with checkpoints."""

    parameters: TrainParameters
    run_id: str | None

    @property
    def model_dir(self) -> str:
        """Directory of its checkpoints."""
        return self.parameters.model_dir

    def available(self) -> Available:
        """List the checkpoints."""
        best = best_record(self.model_dir)
        steps = CheckpointStore(self.model_dir).steps()
        return Available(without_secrets(self.model_dir), steps, None if best is None else best.step)


@dataclass(frozen=True, slots=True)
class Tracked:
    """The MLflow store to use, and the run of the training in it, if any."""

    store: str
    run: TrainingRun | None


def found_training(source: CheckpointSource) -> FoundTraining:
    """Find the training of `source`, and its configuration; changes nothing.

    Raises
    ------
    UsageError
        If there is no such run, or its model_dir does not exist.
    ConfigError
        If the configuration is missing, damaged or wrong, or MLflow does not answer.
    """
    if source.run_id is not None:
        return FoundTraining(_parameters(source, _run(prepare_store(), source.run_id).model_dir), source.run_id)
    parameters = _parameters(source, source.model_dir)
    job = JobFile(parameters.model_dir)
    record = job.read()
    is_of_another = record is None or job.copied_from() is not None  # the run of a copy is that of the original
    return FoundTraining(parameters, None if record is None or is_of_another else record.run_id)


def tracked(training: FoundTraining) -> Tracked:
    """Find the run of a training in MLflow. Imports MLflow, for more than a second.

    Raises ConfigError if MLflow does not answer.
    """
    store = prepare_store()
    return Tracked(store, None if training.run_id is None else find_training_run(store, training.run_id))


def _run(store: str, run_id: str) -> TrainingRun:
    found = find_training_run(store, run_id)
    if found is None:
        raise UsageError(
            (
                f"there is no run {run_id} in the MLflow store {without_secrets(store)}; set MLFLOW_TRACKING_URI to "
                "its store, or name the model_dir",
            )
        )
    if not FileStore(found.model_dir).names(""):
        raise UsageError(
            (f"the model_dir of run {run_id}, {found.model_dir}, is not on this machine; name it: --model-dir DIR",)
        )
    return found


def _parameters(source: CheckpointSource, model_dir: str | None) -> TrainParameters:
    if model_dir is not None:
        check_location(model_dir)
    if source.conf:
        files: tuple[str, ...] = source.conf
    elif model_dir is not None and has_config(model_dir):
        read_config(model_dir)  # raises its own faults before the overrides are read
        files = (f"{absolute(model_dir).rstrip('/')}/{CONFIG}",)
    else:
        raise ConfigError(
            (
                f"{without_secrets(str(model_dir))} has no {CONFIG}: expected a model_dir that psflow has trained in; "
                "name another one, or also give the configuration file (CONF) of that training",
            )
        )
    settings = read_settings([*files, *source.overrides])
    parameters = parse_parameters(settings.values, settings.origins)
    return resolve(parameters.model_copy(update={"model_dir": model_dir or parameters.model_dir}))


@dataclass(frozen=True)
class ReplayPlan:
    """Evaluations to run."""

    training: FoundTraining
    tracked: Tracked
    selection: str
    steps: Sequence[int]
    job: EvaluationJob
    wanted: Mapping[int, Sequence[int]]
    known: Sequence[EvaluationRecord]
    record: ReplayRecord
    is_forced: bool
    datasets: Sequence[DatasetInfo]
    ignored: Sequence[str]

    @property
    def num_wanted(self) -> int:
        """Number of evaluations to run."""
        return sum(map(len, self.wanted.values()))


def plan_replay(parameters: EvaluateParameters) -> ReplayPlan:
    """Find checkpoints, open the inputs, call the model on a batch of each, read the record; changes nothing.

    Raises UsageError if any of these is invalid.
    """
    selection = Selection.parse(parameters.checkpoints)
    training = found_training(parameters)
    steps = selection.choose(training.available())
    built = build_training(training.parameters)
    specs = tuple(replace(spec, exporters=()) for spec in built.eval_specs)
    store = CheckpointStore(training.model_dir)
    caller = built.estimator.caller
    model = store.manifest(steps[-1]).model
    kept = KeptInputs(training.model_dir)
    with shown_reading():
        planned = plan_evaluations(caller, specs, model, built.estimator.check_labels, kept)
    datasets = planned.datasets
    contexts = [name for name in training.parameters.sources() if name != "train"]
    digests = tuple(
        input_digest(datasets[context], spec.steps) if context in datasets else ""
        for context, spec in zip(contexts, specs, strict=True)
    )
    job = EvaluationJob(
        training.model_dir,
        caller.model_fn,
        caller.params,
        built.estimator.config,
        specs,
        digests,
        tuple(_scan_of(datasets.get(context)) for context in contexts),
        model.schema,
    )
    record = ReplayRecord(training.model_dir, None if parameters.record is None else absolute(parameters.record))
    wanted, known = _divided(steps, job, store.saved_at(), record, is_forced=parameters.force)
    return ReplayPlan(
        training,
        tracked(training),
        parameters.checkpoints,
        steps,
        job,
        wanted,
        known,
        record,
        parameters.force,
        [dataset_info(context, dataset, training.parameters) for context, dataset in datasets.items()],
        planned.ignored,
    )


def _scan_of(opened: SplittableInput | None) -> bytes | None:
    """Return the scan of an input for Dask workers; None without one."""
    return opened.scanned.to_bytes() if isinstance(opened, RecordDataset) else None


def _divided(
    steps: Sequence[int], job: EvaluationJob, saved_at: Mapping[int, float], record: ReplayRecord, *, is_forced: bool
) -> tuple[dict[int, list[int]], list[EvaluationRecord]]:
    """Return the evaluations to run, and those that are recorded."""
    wanted: dict[int, list[int]] = {}
    known = []
    for index, (spec, digest) in enumerate(zip(job.eval_specs, job.digests, strict=True)):
        name = spec.name or ""
        if not is_forced:
            record.check_input(name, digest, "eval.name=NAME" if index == 0 else "another key in evals")
        for step in steps:
            found = None if is_forced else record.find(name, step, saved_at.get(step, 0.0))
            if found is None:
                wanted.setdefault(step, []).append(index)
            else:
                known.append(found)
    return dict(sorted(wanted.items())), known


LoggerLike = logging.Logger | logging.LoggerAdapter[logging.Logger]


class ReplayResults:
    """Records the outcomes of the evaluations of `plan`."""

    def __init__(self, plan: ReplayPlan, logger: LoggerLike) -> None:
        self._plan = plan
        self._logger = logger
        self._tracker: Tracker | None = None
        self.evaluated: list[EvaluationRecord] = []
        self.failures: list[Failure] = []

    def record_in(self, tracker: Tracker) -> None:
        """Send outcomes to MLflow, starting with the recorded ones of the same checkpoints, to complete its curves."""
        self._tracker = tracker
        for evaluation in self._plan.known:
            tracker.handle(evaluation_event(evaluation))

    def take(self, outcome: Outcome) -> int:
        """Record and report an evaluation; report a failure. Return the number of finished evaluations."""
        done = 1 + len(self.evaluated) + len(self.failures)
        of = f"{outcome.global_step}{f' on {outcome.name}' if outcome.name else ''} ({done}/{self._plan.num_wanted})"
        if isinstance(outcome, Failure):
            self.failures.append(outcome)
            self._logger.error("could not evaluate step %s: %s", of, outcome.reason)
            return done
        self._plan.record.write(outcome, is_forced=self._plan.is_forced)
        self.evaluated.append(outcome)
        if self._tracker is not None:
            self._tracker.handle(evaluation_event(outcome))
        shown = ", ".join(f"{name} {value:.4g}" for name, value in outcome.metrics.items() if name != "global_step")
        self._logger.info("evaluation of step %s: %s", of, shown)
        return done

    def facts(self) -> dict[str, Any]:
        """Return the answer of the replay."""
        plan, tracker = self._plan, self._tracker
        return {
            "run_id": None if tracker is None else tracker.run_id,
            "parent_run_id": None if plan.tracked.run is None else plan.tracked.run.run_id,
            "model_dir": without_secrets(plan.training.model_dir),
            "checkpoints": list(plan.steps),
            "evals": [spec.name or "eval" for spec in plan.job.eval_specs],
            "num_evaluated": len(self.evaluated),
            "num_known": len(plan.known),
            "failed": [
                {"step": f.global_step, "eval": f.name or "eval", "reason": f.reason}
                for f in sorted(self.failures, key=lambda f: (f.global_step, f.name))
            ],
            "record": plan.record.path if plan.record.is_written else None,
            "results": list(self._results()),
            "mlflow": {"complete": True, "lost": 0}
            if tracker is None
            else {"complete": tracker.is_whole, "lost": tracker.num_lost},
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the results as the rows of a table."""
        return [
            {"step": row["step"], "eval": row["eval"], **{k: _shown(v) for k, v in row["metrics"].items()}}
            for row in self._results()
        ]

    def raise_failures(self, facts: Mapping[str, Any]) -> None:
        """Raise EvaluationFailedError, with `facts`, if an evaluation has failed."""
        if self.failures:
            raise EvaluationFailedError(
                tuple(f"step {f['step']} on {f['eval']}: {f['reason']}" for f in facts["failed"]), dict(facts)
            )

    def _results(self) -> Iterator[dict[str, Any]]:
        order = {spec.name or "": index for index, spec in enumerate(self._plan.job.eval_specs)}
        found = sorted([*self._plan.known, *self.evaluated], key=lambda e: (e.global_step, order[e.name]))
        for evaluation in found:
            metrics = {name: value for name, value in evaluation.metrics.items() if name != "global_step"}
            yield {"step": evaluation.global_step, "eval": evaluation.name or "eval", "metrics": metrics}


def _shown(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else str(value)
