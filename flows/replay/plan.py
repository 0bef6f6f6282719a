"""What a replay will do: which checkpoints, against what, and what is in the record already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from psflow.flows.parameters.evaluate import EvaluateParameters
from psflow.flows.planning.building import build_training
from psflow.flows.planning.reading_line import shown_reading
from psflow.flows.replay.found_training import FoundTraining, Tracked, found_training, tracked
from psflow.flows.watching.recording import dataset_info
from psflow.ps_runtime.checkpoint.records import EvaluationRecord
from psflow.ps_runtime.checkpoint.selection import Selection
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.record_dataset import RecordDataset
from psflow.ps_runtime.data.splittable import SplittableInput
from psflow.ps_runtime.estimator.planning import plan_evaluations
from psflow.ps_runtime.model.evaluation import input_digest
from psflow.ps_runtime.model.kept_inputs import KeptInputs
from psflow.ps_runtime.specs.directories import absolute
from psflow.tasks.evaluation.record import ReplayRecord
from psflow.tasks.evaluation.worker import EvaluationJob
from psflow.tasks.tracking.run import DatasetInfo

__all__ = ["ReplayPlan", "plan_replay"]


@dataclass(frozen=True)
class ReplayPlan:
    """Evaluations to be done."""

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
        """Number of evaluations to be done."""
        return sum(map(len, self.wanted.values()))


def plan_replay(parameters: EvaluateParameters) -> ReplayPlan:
    """Find the checkpoints, open the inputs, call the model on a batch of each, read the record; change nothing.

    Raises
    ------
    UsageError
        Whatever is wrong with any of these.
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
    """Return the scan of an input for those that evaluate on it; None if there was none."""
    return opened.scanned.to_bytes() if isinstance(opened, RecordDataset) else None


def _divided(
    steps: Sequence[int], job: EvaluationJob, saved_at: Mapping[int, float], record: ReplayRecord, *, is_forced: bool
) -> tuple[dict[int, list[int]], list[EvaluationRecord]]:
    """Return what is to be evaluated, and what the record has already."""
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
