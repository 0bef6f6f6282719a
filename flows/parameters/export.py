"""The keys of the flow that exports a checkpoint, alone or as a stage of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.parameters.checkpoints import CheckpointSource, OneCheckpoint
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.config.files import Origin

__all__ = ["ExportChoice", "ExportParameters", "parse_export_parameters"]


class ExportChoice(FlowParameters):
    """Which checkpoint is exported and registered, and whether it is the best that is chosen anew."""

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
