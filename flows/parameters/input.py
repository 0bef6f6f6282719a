"""Where examples come from: the inputs of training, of evaluations and of predictions."""

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
    """A data set that is split over the workers."""

    batch_size: int = Field(32, ge=1, description="Examples per batch.")
    shuffle: bool = Field(False, description="Whether to shuffle the examples anew in each epoch.")
    epochs: int | None = Field(
        None, ge=1, description="Passes over the data; null: endless in training, one in evaluation."
    )
    seed: int | None = Field(None, ge=0, description="Seed of the shuffling; null: the seed of the run.")
    non_finite: NonFinite = Field("error", description=NON_FINITE)

    def batching(self, *, training: bool, seed: int) -> dict[str, Any]:
        """Return what `psflow.ps_runtime.data.formats.open_dataset` takes beside the format."""
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "epochs": self.epochs if training else self.epochs or 1,
            "seed": seed if self.seed is None else self.seed,
        }


class CheckedInput(DataInput, CheckedParameters):
    """A data set of a format that psflow ships."""


class OwnDataInput(DataInput, NamesCode):
    """A data set of a format of the user; further keys are those of the format."""

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
        return built_by_user(self.format, Format, self.model_extra or {})


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
"""The name of a format alone, where nothing else of it is to be said."""


PredictNonFinite = Literal["error", "keep"]
"""There is no ``drop``: the predictions have a row for each row of the input."""
PREDICT_INVALID = (
    "Cells of tabular files that are not of the type of their column in training, whatever invalid was there, such as "
    "a word in a column of numbers; error: their rows cannot be predicted, see on_error; missing: make them blank, and "
    "report how many they are."
)

PREDICT_NON_FINITE = (
    "Rows with a blank, NaN or infinite cell; keep: predict them, blanks as NaN, and report how many they are, while "
    "those whose prediction is NaN are rows that cannot be predicted; error: refuse the input."
)


def format_named(name: str) -> type[Format]:
    """Return a registered format, or the class of the user that `name` names; ConfigError if there is none."""
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
    """Where examples come from."""

    train: Annotated[SourceParameters, OnResume.LEARNED] = Field(description="Training data.")
    eval: Annotated[SourceParameters, OnResume.MEASURED] = Field(
        description="Evaluation data: one pass, in the order of the data."
    )


LEARNED = ("features", "columns", "groups", "crosses", "weight")
"""Keys of tabular files that say what a model learns to read, which later inputs take over."""
ADVICE = "later inputs are read as the model learned to read its training input; leave it out"

RECORD_FILES = tuple(MODELS[name] for name, kind in FORMATS.items() if issubclass(kind, TabularFiles))


def check_further_inputs(train: SourceParameters, further: Mapping[str, SourceParameters]) -> None:
    """Refuse what an evaluation says of columns, unless the training input says the same.

    Its labels may stand in a column of another name.

    Raises
    ------
    KeyFaultsError
        With a sentence for each such key.
    """
    faults = {f"{where}.{key}": fault for where, source in further.items() for key, fault in _faults(train, source)}
    if faults:
        raise KeyFaultsError(faults)


def _faults(train: SourceParameters, source: SourceParameters) -> Iterator[tuple[str, str]]:
    if not isinstance(source, RECORD_FILES):
        return
    is_alike = isinstance(train, RECORD_FILES)  # the model reads columns as it has learned, else numbers as they are
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
    """Return what is said of the label, None if nothing is."""
    return getattr(getattr(source, "label", None), key, None)


EvalName = Annotated[str, Field(pattern=NAME)]
"""Part of the names of metrics."""


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
    """When and how long to evaluate."""

    name: Annotated[EvalName | None, OnResume.FREE] = Field(
        None, description="Name of this evaluation; null: its metrics are eval/..."
    )


class NamedEvalParameters(_EvaluationSchedule):
    """A further evaluation of each checkpoint. It chooses nothing."""

    input: Annotated[SourceParameters, OnResume.MEASURED] = Field(
        description="Evaluation data: one pass, in the order of the data."
    )
