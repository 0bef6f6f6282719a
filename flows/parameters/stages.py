"""What a configuration says beyond training: the stages of a pipeline, and when it runs by itself."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from psflow.flows.parameters.base import FlowParameters, KeyFaultsError, Strings
from psflow.flows.parameters.evaluate import EvaluateChoice
from psflow.flows.parameters.export import ExportChoice
from psflow.flows.parameters.predict import PredictChoice

__all__ = [
    "EvaluateStage",
    "Overlap",
    "PredictStage",
    "ScheduleParameters",
    "Sections",
    "Stage",
    "StagesParameters",
]

Stage = Literal["train", "evaluate", "export", "predict"]
Overlap = Literal["skip", "queue"]
Stages = Annotated[tuple[Stage, ...], Field(strict=False, min_length=1)]


MAX_INTERVAL_SECS = 366 * 24 * 3600.0


class EvaluateStage(EvaluateChoice):
    """Which checkpoints are evaluated after training; those in the record already are left out."""

    overrides: Strings = Field((), description="Overrides of the configuration, such as input.eval.path=other.csv.")


class PredictStage(PredictChoice):
    """Data to score with the best model."""

    input: str | None = Field(
        None,
        min_length=1,
        description="File, folder or glob of record files, or fsspec URL of one, or digits:test; null: nothing is "
        "predicted.",
    )
    output: str | None = Field(
        None,
        min_length=1,
        description="Directory or fsspec URL for the predictions; null: predictions/step_GLOBAL_STEP in model_dir, or "
        "predictions/batches with new_files_only.",
    )


class StagesParameters(FlowParameters):
    """What a pipeline does, one stage after the other; what an earlier start has done is not done again."""

    stages: Stages | None = Field(
        None,
        description="Stages to run: train, evaluate, export, predict; null: all, but predict only if it has an input.",
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
    """When ``psflow serve`` starts the flow by itself."""

    flow: Literal["train", "pipeline"] = Field("pipeline", description="Flow to start.")
    cron: str | None = Field(
        None, min_length=1, description="Cron expression of five fields, such as 0 3 * * *: every day at three."
    )
    interval_secs: float | None = Field(None, ge=1, le=MAX_INTERVAL_SECS, description="Seconds between two starts.")
    timezone: str = Field("UTC", min_length=1, description="Time zone of cron, such as Europe/Berlin.")
    overlap: Overlap = Field(
        "skip",
        description="What a run does that is due while another one of its deployment runs on this host: skip, it ends "
        "as Skipped; queue, it waits for the other one.",
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.cron is None) == (self.interval_secs is None):
            raise ValueError("expected cron or interval_secs, got both or none")
        if self.interval_secs is not None and self.timezone != "UTC":
            raise KeyFaultsError({"timezone": f"expected it with cron alone, got {self.timezone!r} with interval_secs"})
        return self


class Sections(FlowParameters):
    """The sections of a configuration that training does not look at."""

    pipeline: StagesParameters = Field(StagesParameters(), description="Stages of psflow pipeline.")
    schedule: ScheduleParameters | None = Field(
        None, description="When psflow serve starts the flow; null: only by hand."
    )
