"""Configuration keys of evaluate, export and predict, alone or as stages of a pipeline, and of its schedule."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from psflow.flows.parameters.base import FlowParameters, KeyFaultsError, OneOrMoreStrings, Strings
from psflow.flows.parameters.cluster import EvaluateClusterParameters, PredictClusterParameters
from psflow.flows.parameters.input import PREDICT_INVALID, PREDICT_NON_FINITE, FormatName, PredictNonFinite
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.checkpoint.selection import Selection
from psflow.ps_runtime.config.files import Origin
from psflow.ps_runtime.errors import UsageError
from psflow.tasks.prediction.options import OnError, OutputFormat, PredictInvalid


def _read_by(parse: Callable[[str], Selection]) -> AfterValidator:
    """Refuse a text that `parse` rejects."""

    def checked(text: str) -> str:
        try:
            parse(text)
        except UsageError as error:
            raise ValueError("; ".join(error.faults)) from None
        return text

    return AfterValidator(checked)


Checkpoints = Annotated[str, _read_by(Selection.parse)]
"""A selection of checkpoints."""
OneCheckpoint = Annotated[str, _read_by(Selection.parse_one)]
"""A selection of a single checkpoint."""


class CheckpointSource(FlowParameters):
    """The training whose checkpoints are used."""

    model_dir: str | None = Field(None, min_length=1, description="model_dir of the training; or give run_id.")
    run_id: str | None = Field(
        None, min_length=1, description="Id of the MLflow run of the training, which records its model_dir."
    )
    conf: Strings = Field(
        (), description="Configuration files to use in place of config.yaml in model_dir; later ones win."
    )
    overrides: Strings = Field((), description="Overrides of that configuration, such as input.eval.split=train.")

    @property
    def title(self) -> str:
        """Short name for display: the last part of its path or id."""
        of = self.model_dir or self.run_id or self.conf[0]
        return os.path.basename(of.rstrip("/")).removesuffix(".yaml")

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if self.model_dir is not None and self.run_id is not None:
            raise ValueError("expected model_dir or run_id, got both")
        if self.model_dir is None and self.run_id is None and not self.conf:
            raise ValueError("expected model_dir, run_id or a configuration file, got none")
        return self


class EvaluateChoice(FlowParameters):
    """Checkpoints to evaluate."""

    checkpoints: Checkpoints = Field(
        "all", description="Checkpoints to evaluate: all, latest, best, last:5, 1000..9000, or steps such as 300,600."
    )


class EvaluateParameters(EvaluateChoice, CheckpointSource):
    """The parameters of an evaluation flow."""

    force: bool = Field(False, description="Repeat evaluations that are already recorded.")
    record: str | None = Field(
        None, min_length=1, description="Directory of the record (evaluations.jsonl); null: model_dir."
    )
    cluster: EvaluateClusterParameters = Field(EvaluateClusterParameters(), description="Cluster to evaluate on.")


def parse_evaluate_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> EvaluateParameters:
    """Check settings, and return them as parameters of the evaluation flow; see `parse_as`."""
    return parse_as(EvaluateParameters, values, origins)


class ExportChoice(FlowParameters):
    """Checkpoint to export and register; optionally a new choice of the best one."""

    checkpoint: OneCheckpoint = Field("best", description="Checkpoint to export: best, latest, or a step such as 600.")
    metric: str | None = Field(
        None,
        min_length=1,
        description="Choose the best checkpoint by this metric instead of best.metric; null: keep the current choice.",
    )
    mode: Literal["min", "max"] | None = Field(
        None, description="Whether a smaller or a larger value of metric is better."
    )

    @model_validator(mode="after")
    def _metric_has_a_mode(self) -> Self:
        if (self.metric is None) != (self.mode is None):
            raise ValueError("expected both metric and mode (min or max), or neither")
        if self.metric is not None and self.checkpoint.strip() != "best":
            raise ValueError(
                f"metric and mode choose the best checkpoint: expected checkpoint 'best', got {self.checkpoint!r}"
            )
        return self


class ExportParameters(ExportChoice, CheckpointSource):
    """The parameters of an export flow."""

    takes_alias: bool = Field(
        True, description="Whether the best export takes the alias best even from a better model of another training."
    )


def parse_export_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> ExportParameters:
    """Check settings, and return them as parameters of the export flow; see `parse_as`."""
    return parse_as(ExportParameters, values, origins)


ON_ERROR = (
    "Policy for a row that cannot be read or predicted; stop: stop the prediction there, the same command resumes it; "
    "reject: write the row to _rejects in the output, with the reason, and predict all other rows."
)
NEW_FILES_ONLY = (
    "Predict only tabular files that no earlier run into this output has predicted, into batch-00000, batch-00001, ... "
    "below it. A predicted file that has changed since is refused."
)
OUTPUT_FORMAT = "Format of the parts; parquet or csv. In csv a prediction of several numbers has a column for each."
ESCAPE_FORMULAS = (
    "Whether to put an apostrophe before strings in csv that start with =, +, -, @, a tab or a line end, so that no "
    "spreadsheet runs them as formulas; numbers do not change."
)
PREDICT_KEYS = "Predictions to write, such as [class_ids]; null: all except all_class_ids and all_classes."


class PredictChoice(FlowParameters):
    """Settings of a prediction, alone or as the last stage of a pipeline."""

    format: FormatName | None = Field(
        None, description="Format of the input, as for input.train.format; null: by its suffix."
    )
    non_finite: PredictNonFinite = Field("keep", description=PREDICT_NON_FINITE)
    invalid: PredictInvalid = Field("error", description=PREDICT_INVALID)
    on_error: OnError = Field("stop", description=ON_ERROR)
    new_files_only: bool = Field(False, description=NEW_FILES_ONLY)
    output_format: OutputFormat = Field("parquet", description=OUTPUT_FORMAT)
    escape_formulas: bool = Field(False, description=ESCAPE_FORMULAS)
    predict_keys: OneOrMoreStrings | None = Field(None, min_length=1, description=PREDICT_KEYS)


class PredictParameters(PredictChoice):
    """The parameters of a prediction flow."""

    model: str = Field(min_length=1, description="URI of an MLflow model, such as models:/psflow-digits@best.")
    input: str = Field(
        min_length=1,
        description="File to score, or folder or glob of tabular files, or its fsspec URL; or digits:test, the test "
        "images of the digits.",
    )
    output: str = Field(min_length=1, description="Directory or s3:// URL for the predictions.")
    code_dir: str | None = Field(
        None,
        min_length=1,
        description="Directory to search first for the module that format names; null: only the working directory, "
        "PYTHONPATH and the installed packages.",
    )
    cluster: PredictClusterParameters = Field(PredictClusterParameters(), description="Cluster to predict on.")


def parse_predict_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> PredictParameters:
    """Check settings, and return them as parameters of the prediction flow; see `parse_as`."""
    return parse_as(PredictParameters, values, origins)


Stage = Literal["train", "evaluate", "export", "predict"]
Overlap = Literal["skip", "queue"]
Stages = Annotated[tuple[Stage, ...], Field(strict=False, min_length=1)]


MAX_INTERVAL_SECS = 366 * 24 * 3600.0


class EvaluateStage(EvaluateChoice):
    """Checkpoints to evaluate after training; recorded evaluations are not repeated."""

    overrides: Strings = Field((), description="Overrides of the configuration, such as input.eval.path=other.csv.")


class PredictStage(PredictChoice):
    """Data to score with the best model."""

    input: str | None = Field(
        None,
        min_length=1,
        description="File, folder or glob of tabular files, or fsspec URL of one, or digits:test; null: nothing is "
        "predicted.",
    )
    output: str | None = Field(
        None,
        min_length=1,
        description="Directory or s3:// URL for the predictions; null: predictions/step_GLOBAL_STEP in model_dir, or "
        "predictions/batches with new_files_only.",
    )


class StagesParameters(FlowParameters):
    """Stages of a pipeline, run one after the other; finished stages are not repeated."""

    stages: Stages | None = Field(
        None,
        description="Stages to run: train, evaluate, export, predict; null: all, and predict only if it has an input.",
    )
    evaluate: EvaluateStage = Field(EvaluateStage(), description="Checkpoints to evaluate after training.")
    export: ExportChoice = Field(ExportChoice(), description="Checkpoint to export and to make the best.")
    predict: PredictStage = Field(PredictStage(), description="Data to score with the best model.")

    @model_validator(mode="after")
    def _predict_has_an_input(self) -> Self:
        if self.stages is not None and "predict" in self.stages and self.predict.input is None:
            raise ValueError("the stage predict needs pipeline.predict.input")
        return self

    @property
    def chosen(self) -> tuple[Stage, ...]:
        """The stages to run, in their order."""
        every: tuple[Stage, ...] = ("train", "evaluate", "export", "predict")
        wanted = self.stages if self.stages is not None else every if self.predict.input else every[:3]
        return tuple(stage for stage in every if stage in wanted)


class ScheduleParameters(FlowParameters):
    """Schedule on which ``psflow serve`` starts the flow."""

    flow: Literal["train", "pipeline"] = Field("pipeline", description="Flow to start.")
    cron: str | None = Field(
        None, min_length=1, description="Cron expression of five fields, such as 0 3 * * *: every day at three."
    )
    interval_secs: float | None = Field(None, ge=1, le=MAX_INTERVAL_SECS, description="Seconds between two starts.")
    timezone: str = Field("UTC", min_length=1, description="Time zone of cron, such as Europe/Berlin.")
    overlap: Overlap = Field(
        "skip",
        description="Policy for a run that is due while another run of its deployment runs on this host; skip: it ends "
        "as Skipped; queue: it waits.",
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.cron is None) == (self.interval_secs is None):
            raise ValueError("expected cron or interval_secs, got both or none")
        if self.interval_secs is not None and self.timezone != "UTC":
            raise KeyFaultsError({"timezone": f"expected it with cron alone, got {self.timezone!r} with interval_secs"})
        return self


class Sections(FlowParameters):
    """Sections of a configuration that training ignores."""

    pipeline: StagesParameters = Field(StagesParameters(), description="Stages of psflow pipeline.")
    schedule: ScheduleParameters | None = Field(
        None, description="When psflow serve starts the flow; null: only manually."
    )
