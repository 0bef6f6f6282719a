"""What a flow can be told: frozen models, from which the Prefect UI renders a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from flows.parameter_faults import faults_of
from ps_runtime.config.files import Origin
from ps_runtime.errors import ConfigError, UsageError, did_you_mean
from ps_runtime.optimizers import OPTIMIZERS, Optimizer

__all__ = [
    "CannedModel",
    "DataInput",
    "FunctionInput",
    "FunctionModel",
    "PredictParameters",
    "TrainParameters",
    "parse_parameters",
    "parse_predict_parameters",
]

FUNCTION = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
"""``package.module:function``."""

EXPERIMENT = r"^[A-Za-z0-9][\w.-]*$"
"""It names directories and registered models."""


class _Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class OptimizerParameters(_Parameters):
    """An optimizer by name, and its hyper-parameters."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(description=f"One of {', '.join(OPTIMIZERS)}.")
    learning_rate: float | None = Field(None, description="Step size; null: the optimizer's own default.")

    @model_validator(mode="after")
    def _can_be_built(self) -> Self:
        try:
            self.build()
        except UsageError as error:
            raise ValueError("; ".join(error.faults)) from None
        return self

    def build(self) -> Optimizer:
        """Return the optimizer.

        Raises
        ------
        UsageError
            If the name or a hyper-parameter is unknown, a hyper-parameter is missing or out of its range.
        """
        if self.name not in OPTIMIZERS:
            known = ", ".join(OPTIMIZERS)
            raise UsageError(
                (f"unknown optimizer {self.name!r}, expected one of {known}{did_you_mean(self.name, OPTIMIZERS)}",)
            )
        rule = OPTIMIZERS[self.name]
        given = self.model_dump(exclude={"name"}, exclude_none=True)
        known_fields = {f.name: f for f in fields(rule)}
        faults = [
            f"{self.name}: unknown key {key!r}{did_you_mean(key, known_fields)}"
            for key in given
            if key not in known_fields
        ]
        faults += [
            f"{self.name}: {name} is missing"
            for name, f in known_fields.items()
            if f.default is MISSING and name not in given
        ]
        if faults:
            raise UsageError(tuple(faults))
        return rule(**given)


class DNNClassifierParameters(_Parameters):
    """Hyper-parameters of the canned DNNClassifier."""

    hidden_units: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)] = Field(
        description="Units of each hidden layer, from the input on."
    )
    n_classes: int = Field(2, ge=2, description="Number of classes; labels are 0 to n_classes - 1.")
    optimizer: OptimizerParameters = Field(
        OptimizerParameters(name="Adagrad", learning_rate=0.05), description="How the ps applies gradients."
    )


class CannedModel(_Parameters):
    """A model that psflow ships."""

    name: Literal["DNNClassifier"] = Field(description="Name of the canned model.")
    params: DNNClassifierParameters = Field(description="Its hyper-parameters.")


class FunctionModel(_Parameters):
    """A model_fn of the user."""

    name: str = Field(pattern=FUNCTION, description="The model_fn, as package.module:function.")
    params: dict[str, Any] = Field(default_factory=dict, description="Hyper-parameters, passed to it as params.")


class DataInput(_Parameters):
    """A data set that is split over the workers."""

    format: Literal["csv", "tsv", "npz", "digits"] = Field(description="Format of the data; digits is built in.")
    path: str | None = Field(None, description="File or fsspec URL; null for a data set that is built in.")
    split: str | None = Field(None, description="Part of the data set, such as train or test; null: all of it.")
    label: str | None = Field(None, description="Column or array that holds the label.")
    features: Annotated[tuple[str, ...], Field(strict=False)] | None = Field(
        None, description="Columns or arrays that are features; null: all but the label."
    )
    batch_size: int = Field(32, ge=1, description="Examples in a batch.")
    shuffle: bool = Field(False, description="Whether each epoch takes the examples in an order of its own.")
    epochs: int | None = Field(
        None, ge=1, description="Passes over the data; null: without end in training, one in evaluation."
    )
    seed: int | None = Field(None, ge=0, description="Seed of the order; null: the seed of the run.")

    @model_validator(mode="after")
    def _path_fits_format(self) -> Self:
        if (self.path is None) != (self.format == "digits"):
            expected = "no path, it is built in" if self.format == "digits" else "a path"
            raise ValueError(f"format {self.format!r} needs {expected}")
        return self


class FunctionInput(_Parameters):
    """An input_fn of the user."""

    name: str = Field(pattern=FUNCTION, description="The input_fn, as package.module:function.")
    params: dict[str, Any] = Field(default_factory=dict, description="Hyper-parameters, passed to it as params.")


def _get(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def _kind_of_model(value: Any) -> str | None:
    if not isinstance(value, Mapping | BaseModel):
        return None
    return "FunctionModel" if ":" in str(_get(value, "name")) else "CannedModel"


def _kind_of_input(value: Any) -> str | None:
    if not isinstance(value, Mapping | BaseModel):
        return None
    return "DataInput" if _get(value, "name") is None else "FunctionInput"


Model = Annotated[
    Annotated[CannedModel, Tag("CannedModel")] | Annotated[FunctionModel, Tag("FunctionModel")],
    Discriminator(_kind_of_model),
]
Input = Annotated[
    Annotated[DataInput, Tag("DataInput")] | Annotated[FunctionInput, Tag("FunctionInput")],
    Discriminator(_kind_of_input),
]


class InputParameters(_Parameters):
    """Where examples come from."""

    train: Input = Field(description="What is trained on.")
    eval: Input = Field(description="What is evaluated on.")


class TrainingParameters(_Parameters):
    """How long to train, and what to keep."""

    max_steps: int | None = Field(None, ge=1, description="Final global_step; null: until the data ends.")
    save_checkpoints_steps: int | None = Field(None, ge=1, description="Steps between checkpoints.")
    save_checkpoints_secs: float | None = Field(
        600.0, gt=0, description="Seconds between checkpoints; null if they are counted in steps. Both null: none."
    )
    keep_checkpoint_max: int | None = Field(5, ge=0, description="Checkpoints to keep; 0 or null: all.")
    log_step_count_steps: int = Field(100, ge=1, description="Steps between reports of the speed.")
    save_summary_steps: int = Field(100, ge=1, description="Steps between metrics.")

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


class EvalParameters(_Parameters):
    """When and how long to evaluate."""

    steps: int | None = Field(None, ge=1, description="Batches to evaluate; null: to the end of the data.")
    throttle_secs: float = Field(0.0, ge=0, description="Least seconds between the starts of two evaluations.")
    start_delay_secs: float = Field(0.0, ge=0, description="Seconds before the first evaluation.")
    name: str | None = Field(None, min_length=1, description="Name of this evaluation; null if there is but one.")


class BestParameters(_Parameters):
    """Which checkpoint is the best, and is exported."""

    metric: str = Field("loss", min_length=1, description="Evaluation metric to compare.")
    mode: Literal["min", "max"] = Field("min", description="Whether a smaller or a larger value is better.")
    exports_to_keep: int = Field(5, ge=1, description="Exports to keep on disk.")


class PredictClusterParameters(_Parameters):
    """Where partitions are predicted."""

    address: str | None = Field(None, description="Address of a Dask scheduler; null: start a cluster on this machine.")
    workers: int = Field(2, ge=1, description="Dask workers of a cluster on this machine.")


class ClusterParameters(_Parameters):
    """Where roles run, and how many there are."""

    address: str | None = Field(None, description="Address of a Dask scheduler; null: start a cluster on this machine.")
    ps: int = Field(1, ge=1, description="Parameter servers.")
    workers: int = Field(1, ge=0, description="Workers beside the chief, which trains too.")
    admission_timeout_secs: float = Field(60.0, gt=0, description="Seconds to wait for enough free slots.")


class TrainParameters(_Parameters):
    """Everything that a training flow is told."""

    experiment: str = Field(pattern=EXPERIMENT, description="MLflow experiment; it names defaults below.")
    model: Model = Field(description="What is trained.")
    input: InputParameters = Field(description="What it is trained and evaluated on.")
    seed: int | None = Field(None, ge=0, description="Seed of initial values and orders; null: a random one.")
    model_dir: str = Field(
        default_factory=lambda data: f"runs/{data['experiment']}",
        min_length=1,
        description="Directory or fsspec URL of checkpoints and exports; default: runs/<experiment>.",
    )
    registered_model: str = Field(
        default_factory=lambda data: f"psflow-{data['experiment']}",
        min_length=1,
        description="Name in the MLflow registry; default: psflow-<experiment>.",
    )
    transport: Literal["auto", "unix", "tcp"] = Field("auto", description="How workers reach ps; auto: the fastest.")
    pipeline_depth: int = Field(0, ge=0, le=0, description="Pushes under way while the next gradient is computed.")
    train: TrainingParameters = Field(TrainingParameters(), description="How long to train, and what to keep.")
    eval: EvalParameters = Field(EvalParameters(), description="When and how long to evaluate.")
    best: BestParameters = Field(BestParameters(), description="Which checkpoint is the best.")
    cluster: ClusterParameters = Field(ClusterParameters(), description="Where roles run, and how many there are.")


class PredictParameters(_Parameters):
    """Everything that a prediction flow is told."""

    model: str = Field(min_length=1, description="URI of an MLflow model, such as models:/psflow-digits@best.")
    input: str = Field(min_length=1, description="CSV, TSV or npz file, or fsspec URL of one.")
    output: str = Field(min_length=1, description="Directory or fsspec URL for the predictions.")
    cluster: PredictClusterParameters = Field(PredictClusterParameters(), description="Where partitions are predicted.")


P = TypeVar("P", bound=BaseModel)


def parse_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> TrainParameters:
    """Check settings, and return them as parameters of the training flow.

    Parameters
    ----------
    values : mapping
        Nested plain values, such as `ps_runtime.config.files.Settings.values`.
    origins : mapping
        Where each dotted key was set; may be empty.

    Raises
    ------
    ConfigError
        With a sentence for every fault: its file and line, the key, what was expected, what came.
    """
    return _parse(TrainParameters, values, origins)


def parse_predict_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> PredictParameters:
    """Check settings, and return them as parameters of the prediction flow; see `parse_parameters`."""
    return _parse(PredictParameters, values, origins)


def _parse(model: type[P], values: Mapping[str, Any], origins: Mapping[str, Origin]) -> P:
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(faults_of(error, model, origins)) from None
