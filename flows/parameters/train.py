"""Configuration keys of the training flow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from psflow.flows.parameters.base import EXPERIMENT, MODEL_NAME, FlowParameters, OnResume, Strings, check_declared
from psflow.flows.parameters.cluster import ClusterParameters
from psflow.flows.parameters.input import (
    DataInput,
    EvalName,
    EvalParameters,
    InputParameters,
    NamedEvalParameters,
    SourceParameters,
    check_further_inputs,
)
from psflow.flows.parameters.model import KINDS, ConsistencyParameters, ModelParameters
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.warm_start_settings import WarmStartSettings
from psflow.ps_runtime.specs.consistency import Async
from psflow.ps_runtime.specs.run_config import RunConfig
from psflow.ps_runtime.specs.wire_format import NumberFormat, WireFormat
from psflow.ps_runtime.transport.connecting import TRANSPORTS

SCHEDULED_TIME = "{scheduled_time}"


def check_placeholders(path: str) -> None:
    """Raise ValueError if `path` has an unknown placeholder."""
    unknown = re.findall(r"\{[^}]*\}?|\}", path.replace(SCHEDULED_TIME, ""))
    if unknown:
        raise ValueError(f"unknown placeholder {unknown[0]!r}, expected {SCHEDULED_TIME} or none")


def filled(path: str, scheduled_time: datetime) -> str:
    """Return `path` with the time filled in, in UTC, to the second.

    Examples
    --------
    >>> filled("runs/digits/{scheduled_time}", datetime(2026, 11, 21, 3, 0, tzinfo=UTC))
    'runs/digits/20261121T030000Z'
    """
    return path.replace(SCHEDULED_TIME, scheduled_time.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ"))


if TYPE_CHECKING:
    TransportName = str
else:
    TransportName = Literal[tuple(TRANSPORTS)]


class TrainingParameters(FlowParameters):
    """Duration of training, checkpoints to keep, and consistency of updates."""

    max_steps: Annotated[int | None, OnResume.FREE] = Field(
        None, ge=1, description="Final global_step; null: until the data ends."
    )
    save_checkpoints_steps: Annotated[int | None, OnResume.FREE] = Field(
        None, ge=1, description="Steps between checkpoints."
    )
    save_checkpoints_secs: Annotated[float | None, OnResume.FREE] = Field(
        600.0, gt=0, description="Seconds between checkpoints; null with save_checkpoints_steps. Both null: none."
    )
    keep_checkpoint_max: Annotated[int | None, OnResume.FREE] = Field(
        5, ge=0, description="Newest checkpoints to keep, beside the best one; 0 or null: all."
    )
    log_step_count_steps: Annotated[int, OnResume.FREE] = Field(
        100, ge=1, description="Steps between reports of the speed."
    )
    save_summary_steps: Annotated[int, OnResume.FREE] = Field(100, ge=1, description="Steps between metrics.")
    consistency: Annotated[ConsistencyParameters, OnResume.LEARNED] = Field(
        KINDS[Async.name].model_validate({"name": Async.name}),
        description="Consistency of updates: how pushes of several replicas become updates.",
    )
    each_worker_reads_all: Annotated[bool, OnResume.LEARNED] = Field(
        False,
        description="false: all replicas share the training input, so that each example is used once an epoch; true: "
        "the chief and each worker read the whole input, as in TensorFlow's Estimator.",
    )

    @model_validator(mode="before")
    @classmethod
    def _steps_replace_secs(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("save_checkpoints_steps") is not None:
            return {"save_checkpoints_secs": None, **values}
        return values

    @model_validator(mode="after")
    def _steps_or_secs(self) -> Self:
        if self.save_checkpoints_steps is not None and self.save_checkpoints_secs is not None:
            raise ValueError("expected save_checkpoints_steps or save_checkpoints_secs, got both")
        return self


class BestParameters(FlowParameters):
    """Choice of the best checkpoint, which is exported."""

    metric: Annotated[str, OnResume.FREE] = Field("loss", min_length=1, description="Evaluation metric to compare.")
    mode: Annotated[Literal["min", "max"], OnResume.FREE] = Field(
        "min", description="Whether a smaller or a larger value is better."
    )
    exports_to_keep: Annotated[int, OnResume.FREE] = Field(5, ge=1, description="Exports to keep on disk.")
    register_each: Annotated[bool, OnResume.FREE] = Field(
        False,
        description="Whether each new best export is registered in MLflow as it is made; false: the best one, when "
        "training ends.",
    )


class ResumeParameters(FlowParameters):
    """Policy for a model_dir that already holds a job."""

    allow_changes: bool = Field(False, description="Resume even if a changed key alters what the model learns.")
    fork: str | None = Field(
        None,
        min_length=1,
        description="Another model_dir, to start a new job there from the latest checkpoint, in a new MLflow run.",
    )
    when_running: Literal["fail", "wait"] = Field(
        "fail",
        description="Whether to fail at once if another process trains in model_dir, or to wait for its end, up "
        "to cluster.admission_timeout_secs.",
    )


class WarmStartParameters(FlowParameters):
    """Variables to initialize from a checkpoint, if model_dir has none."""

    checkpoint: str = Field(min_length=1, description="A model_dir, or the directory of a checkpoint; a path or URL.")
    variables: str | Strings = Field(
        ".*",
        description="Regular expression of the trainable variables and tables to initialize; a list of expressions "
        "chooses among all variables.",
    )
    rename: dict[str, str] = Field(
        default_factory=dict, description="Names of variables in the checkpoint, if they differ, by name."
    )

    def build(self) -> WarmStartSettings:
        """Return the settings of an Estimator."""
        return WarmStartSettings(self.checkpoint, self.variables, None, self.rename)


class WireParameters(FlowParameters):
    """Number formats of gradients and parameters over TCP; bfloat16 halves the bytes."""

    gradients: NumberFormat = Field(
        WireFormat.gradients,
        description="Format of float32 gradients from replicas to ps; the ps sums and updates in float32.",
    )
    parameters: NumberFormat = Field(
        WireFormat.parameters,
        description="Format of float32 parameters from ps to replicas; the ps, checkpoints and exports keep float32.",
    )

    def build(self) -> WireFormat:
        """Return the setting of a RunConfig."""
        return WireFormat(self.gradients, self.parameters)


class TrainParameters(FlowParameters):
    """The parameters of a training flow."""

    experiment: Annotated[str, OnResume.FREE] = Field(
        pattern=EXPERIMENT, description="MLflow experiment; model_dir and registered_model are named after it."
    )
    model: Annotated[ModelParameters, OnResume.LEARNED] = Field(description="Model to train.")
    input: InputParameters = Field(description="Training and evaluation data.")
    seed: Annotated[int | None, OnResume.LEARNED] = Field(
        None, ge=0, description="Seed of initial values and of shuffling; null: a random one."
    )
    warm_start: Annotated[WarmStartParameters | None, OnResume.LEARNED] = Field(
        None, description="Checkpoint to initialize variables from, if model_dir has none; null: initial values."
    )
    model_dir: Annotated[str, OnResume.FREE] = Field(
        default_factory=lambda data: f"runs/{data['experiment']}",
        min_length=1,
        description="Local directory, or file:// URL, of checkpoints and exports; {scheduled_time} in it becomes "
        "the scheduled start of the run, so that each run has its own; default: runs/EXPERIMENT.",
    )
    registered_model: Annotated[str, OnResume.FREE] = Field(
        default_factory=lambda data: f"psflow-{data['experiment']}",
        pattern=MODEL_NAME,
        max_length=256,
        description="Name in the MLflow registry; default: psflow-EXPERIMENT.",
    )
    code_dir: Annotated[str | None, OnResume.FREE] = Field(
        None,
        min_length=1,
        description="Directory to search for the modules that model and input name; default: the directory of the "
        "first configuration file.",
    )
    transport: Annotated[TransportName, OnResume.FREE] = Field(
        "auto",
        description="How replicas connect to a ps; auto: shared memory (shm) if possible, else Unix socket, else TCP.",
    )
    wire: Annotated[WireParameters, OnResume.LEARNED] = Field(
        WireParameters(), description="Number formats of gradients and parameters over TCP; bfloat16 halves the bytes."
    )
    pipeline_depth: Annotated[int, OnResume.LEARNED] = Field(
        0,
        ge=0,
        le=1,
        description="0: pull, compute and push in turn; 1: read the next batch and pull its values during the "
        "computation of the current one, which makes each gradient staler by one.",
    )
    train: TrainingParameters = Field(
        TrainingParameters(), description="Duration of training, checkpoints to keep, and consistency of updates."
    )
    eval: EvalParameters = Field(EvalParameters(), description="Schedule of the evaluation.")
    evals: dict[EvalName, NamedEvalParameters] = Field(
        default_factory=dict, description="Additional evaluations of each checkpoint, by name: metrics eval_NAME/..."
    )
    best: BestParameters = Field(BestParameters(), description="Choice of the best checkpoint.")
    cluster: ClusterParameters = Field(ClusterParameters(), description="Cluster and number of roles.")
    plots: Annotated[bool, OnResume.FREE] = Field(
        True,
        description="Whether to add learning curves to the MLflow run, and for classifiers confusion matrix, ROC and "
        "precision-recall curves; takes about two seconds of a processor at the end of training.",
    )
    resume: Annotated[ResumeParameters, OnResume.FREE] = Field(
        ResumeParameters(), description="Policy for a model_dir that already holds a job."
    )

    @field_validator("model_dir")
    @classmethod
    def _known_placeholders(cls, value: str) -> str:
        check_placeholders(value)
        return value

    @model_validator(mode="after")
    def _consistency_fits_pipeline(self) -> Self:
        try:
            RunConfig(consistency=self.train.consistency.build(), pipeline_depth=self.pipeline_depth)
        except UsageError as error:
            raise ValueError("; ".join(error.faults)) from None
        return self

    @model_validator(mode="after")
    def _all_parts_are_read(self) -> Self:
        if self.train.each_worker_reads_all and self.cluster.most_workers > self.cluster.workers:
            why = "each worker reads data that no other one does, so none may be missing; leave out cluster.max_workers"
            raise ValueError(f"train.each_worker_reads_all is true: {why}")
        return self

    @model_validator(mode="after")
    def _eval_names_differ(self) -> Self:
        if self.eval.name in self.evals:
            raise ValueError(f"eval.name is {self.eval.name!r}, which is also a name in evals; choose another")
        return self

    def sources(self) -> dict[str, SourceParameters]:
        """Return every input: ``train``, ``eval``, and ``eval_<name>`` for each of `evals`."""
        further = {f"eval_{name}": evaluation.input for name, evaluation in self.evals.items()}
        return {"train": self.input.train, "eval": self.input.eval, **further}

    @model_validator(mode="after")
    def _columns_are_those_of_training(self) -> Self:
        further = {f"evals.{name}.input": evaluation.input for name, evaluation in self.evals.items()}
        check_further_inputs(self.input.train, {"input.eval": self.input.eval, **further})
        return self

    @model_validator(mode="after")
    def _ends(self) -> Self:
        data = self.input.train
        if self.train.max_steps is None and isinstance(data, DataInput) and data.epochs is None:
            raise ValueError("training would never end; give train.max_steps or input.train.epochs")
        return self


check_declared(TrainParameters)


def parse_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> TrainParameters:
    """Check settings, and return them as parameters of the training flow; see `parse_as`."""
    return parse_as(TrainParameters, values, origins)
