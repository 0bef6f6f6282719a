"""Where checkpoints are, and what they were trained with."""

from __future__ import annotations

import os
from dataclasses import dataclass

from psflow.flows.parameters.checkpoints import CheckpointSource
from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.resolved_config import CONFIG, has_config, read_config, resolve
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.watching.summary import best_record
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.selection import Available
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.estimator.model_dir import check_local
from psflow.ps_runtime.redaction import without_secrets
from psflow.ps_runtime.specs.directories import absolute
from psflow.tasks.tracking.child_run import TrainingRun, find_training_run
from psflow.tasks.tracking.store import prepare_store

__all__ = ["FoundTraining", "Tracked", "found_training", "tracked"]


@dataclass(frozen=True, slots=True)
class FoundTraining:
    """A training that has left checkpoints."""

    parameters: TrainParameters
    run_id: str | None

    @property
    def model_dir(self) -> str:
        """Where its checkpoints are."""
        return self.parameters.model_dir

    def available(self) -> Available:
        """Look which checkpoints there are."""
        best = best_record(self.model_dir)
        steps = CheckpointStore(self.model_dir).steps()
        return Available(without_secrets(self.model_dir), steps, None if best is None else best.step)


@dataclass(frozen=True, slots=True)
class Tracked:
    """The MLflow store to use, and the run of the training there; None if it has no such run."""

    store: str
    run: TrainingRun | None


def found_training(source: CheckpointSource) -> FoundTraining:
    """Find the training that `source` names, and its configuration; change nothing.

    Raises
    ------
    UsageError
        If there is no such run, or its model_dir is not there.
    ConfigError
        If the configuration is missing, damaged or wrong, or MLflow does not answer.
    """
    if source.run_id is not None:
        return FoundTraining(_parameters(source, _run(prepare_store(), source.run_id).model_dir), source.run_id)
    parameters = _parameters(source, source.model_dir)
    job = JobFile(parameters.model_dir)
    record = job.read()
    is_of_another = record is None or job.copied_from() is not None  # of a copy the run is that of the original
    return FoundTraining(parameters, None if record is None or is_of_another else record.run_id)


def tracked(training: FoundTraining) -> Tracked:
    """Find the run of a training in MLflow. Imports MLflow, for more than a second.

    Raises
    ------
    ConfigError
        If MLflow does not answer.
    """
    store = prepare_store()
    return Tracked(store, None if training.run_id is None else find_training_run(store, training.run_id))


def _run(store: str, run_id: str) -> TrainingRun:
    found = find_training_run(store, run_id)
    if found is None:
        raise UsageError(
            (
                f"there is no run {run_id} in the MLflow store {without_secrets(store)}; set MLFLOW_TRACKING_URI to "
                "the store that has it, or name the model_dir",
            )
        )
    if not os.path.isdir(found.model_dir):
        raise UsageError(
            (f"the model_dir of run {run_id}, {found.model_dir}, is not on this machine; name it: --model-dir DIR",)
        )
    return found


def _parameters(source: CheckpointSource, model_dir: str | None) -> TrainParameters:
    if model_dir is not None:
        check_local(model_dir)
    if source.conf:
        files: tuple[str, ...] = source.conf
    elif model_dir is not None and has_config(model_dir):
        read_config(model_dir)  # whatever is wrong with it is not the fault of the overrides
        files = (os.path.join(absolute(model_dir), CONFIG),)
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
