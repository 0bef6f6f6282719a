"""Configuration keys of the inputs of training, evaluations and predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from psflow.flows.parameters.base import FUNCTION, FlowParameters, KeyFaultsError, NamesCode, OnResume
from psflow.flows.parameters.kinds import (
    ONE_OF_YOURS,
    CheckedParameters,
    Choice,
    KindParameters,
    keys_of,
    parameters_of,
)
from psflow.flows.parameters.user_modules import built_by_user, own_class
from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.formats import FORMATS
from psflow.ps_runtime.data.non_finite import NON_FINITE, NonFinite
from psflow.ps_runtime.data.record_formats import TabularFiles
from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.specs.arguments import NAME


class DataInput(KindParameters):
    """A data set that is divided among the workers."""

    batch_size: int = Field(32, ge=1, description="Examples per batch.")
    shuffle: bool = Field(False, description="Whether to reshuffle the examples in each epoch.")
    epochs: int | None = Field(
        None, ge=1, description="Passes over the data; null: endless in training, one in evaluation."
    )
    seed: int | None = Field(None, ge=0, description="Seed of the shuffling; null: the seed of the run.")
    non_finite: NonFinite = Field("error", description=NON_FINITE)

    def batching(self, *, training: bool, seed: int) -> dict[str, Any]:
        """Return the arguments of `psflow.ps_runtime.data.formats.open_dataset` other than the format."""
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "epochs": self.epochs if training else self.epochs or 1,
            "seed": seed if self.seed is None else self.seed,
        }


class CheckedInput(DataInput, CheckedParameters):
    """A data set of a format that psflow ships."""


class OwnDataInput(DataInput, NamesCode):
    """A data set in a format of the user; other keys are those of the format."""

    model_config = ConfigDict(extra="allow")

    format: str = Field(pattern=FUNCTION, description="The format, as package.module:Class.")

    def build(self) -> Any:
        """Return the format; ConfigError or UsageError as `built_by_user` raises."""
        kind = own_class(self.format, Format, "format")
        taken = sorted({*DataInput.model_fields, "format", "name"} & set(keys_of(kind)))
        if taken:
            raise UsageError(
                (f"format {self.format} has a parameter {taken[0]!r}, which is a key of every input; rename it",)
            )
        return built_by_user("format", self.format, Format, self.model_extra or {}, {})


class FunctionInput(FlowParameters, NamesCode):
    """An input_fn of the user."""

    name: str = Field(pattern=FUNCTION, description="The input_fn, as package.module:function.")
    params: dict[str, Any] = Field(default_factory=dict, description="Hyper-parameters, passed to it as params.")
    non_finite: NonFinite = Field("error", description=NON_FINITE)


def _known_format(name: str) -> str:
    if name not in FORMATS and ":" not in name:
        near = did_you_mean(name, FORMATS)
        raise ValueError(f"unknown input format {name!r}, expected one of {', '.join(FORMATS)}, {ONE_OF_YOURS}{near}")
    return name


FormatName = Annotated[str, AfterValidator(_known_format)]
"""A format by its name, without options."""


PredictNonFinite = Literal["error", "keep"]
"""No ``drop``: the predictions have a row for each row of the input."""
PREDICT_INVALID = (
    "Policy for cells of tabular files that do not have the type of their column in training, such as a string in a "
    "column of numbers, regardless of invalid in training; error: their rows cannot be predicted, see on_error; "
    "missing: read them as missing values and report their number."
)

PREDICT_NON_FINITE = (
    "Policy for rows with a missing, NaN or infinite cell; keep: predict them, missing values as NaN, and report their "
    "number, while rows whose prediction is NaN count as not predicted, see on_error; error: refuse the input."
)


def format_named(name: str) -> type[Format]:
    """Return the registered format or user class `name`; ConfigError if there is none."""
    kind: type[Format] = FORMATS[name] if name in FORMATS else own_class(name, Format, "format")
    return kind


MODELS: dict[str, type[CheckedInput]] = {
    name: parameters_of(kind, f"{kind.__name__}Input", CheckedInput, {"format": name}, {})
    for name, kind in FORMATS.items()
}

if TYPE_CHECKING:
    SourceParameters = DataInput | FunctionInput
else:
    SourceParameters = Choice(
        "input format", MODELS, own=OwnDataInput, key="format", others={"name": FunctionInput}
    ).annotation


class InputParameters(FlowParameters):
    """Sources of examples."""

    train: Annotated[SourceParameters, OnResume.LEARNED] = Field(description="Training data.")
    eval: Annotated[SourceParameters, OnResume.MEASURED] = Field(
        description="Evaluation data: one pass, in the order of the data."
    )


LEARNED = ("features", "columns", "groups", "crosses", "weight")
"""Keys of tabular files that training determines, and later inputs inherit."""
ADVICE = "later inputs are read like the training input of the model; leave it out"

TABULAR_INPUTS = tuple(MODELS[name] for name, kind in FORMATS.items() if issubclass(kind, TabularFiles))


def check_further_inputs(train: SourceParameters, further: Mapping[str, SourceParameters]) -> None:
    """Refuse keys of columns in an evaluation that differ from those of the training input.

    The labels may be in a column of another name.

    Raises KeyFaultsError with a sentence for each such key.
    """
    faults = {f"{where}.{key}": fault for where, source in further.items() for key, fault in _faults(train, source)}
    if faults:
        raise KeyFaultsError(faults)


def _faults(train: SourceParameters, source: SourceParameters) -> Iterator[tuple[str, str]]:
    if not isinstance(source, TABULAR_INPUTS):
        return
    is_alike = isinstance(train, TABULAR_INPUTS)  # the model reads columns as in training, else raw numbers
    for key in (*LEARNED, "key_columns") if is_alike else LEARNED:
        value = getattr(source, key)
        learned = getattr(train, key) if is_alike else None
        default = type(source).model_fields[key].get_default(call_default_factory=True)
        if value not in (default, learned):
            yield key, f"differs from input.train.{key}: {ADVICE}"
    for key in ("classes", "normalize"):
        value = _of_label(source, key)
        if value is not None and value != _of_label(train, key):
            yield f"label.{key}", f"differs from {key} of input.train.label: {ADVICE}"


def _of_label(source: SourceParameters, key: str) -> object:
    """Return a key of the label, None if it is not set."""
    return getattr(getattr(source, "label", None), key, None)


EvalName = Annotated[str, Field(pattern=NAME)]
"""Pattern of an evaluation, which is part of the names of metrics."""


class _EvaluationSchedule(FlowParameters):
    steps: Annotated[int | None, OnResume.MEASURED] = Field(
        None, ge=1, description="Batches to evaluate; null: to the end of the data."
    )
    throttle_secs: Annotated[float, OnResume.FREE] = Field(
        0.0, ge=0, description="Minimum seconds between the starts of two evaluations."
    )
    start_delay_secs: Annotated[float, OnResume.FREE] = Field(
        0.0, ge=0, description="Seconds before the first evaluation."
    )


class EvalParameters(_EvaluationSchedule):
    """Schedule of the evaluation."""

    name: Annotated[EvalName | None, OnResume.FREE] = Field(
        None, description="Name of this evaluation; null: its metrics are eval/..."
    )


class NamedEvalParameters(_EvaluationSchedule):
    """An additional evaluation of each checkpoint, which does not choose the best one."""

    input: Annotated[SourceParameters, OnResume.MEASURED] = Field(
        description="Evaluation data: one pass, in the order of the data."
    )
