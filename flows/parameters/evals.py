"""What checkpoints are evaluated on, when and how long: the evaluation that chooses the best, and further ones."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.parameters.input import SourceParameters
from psflow.flows.parameters.on_resume import OnResume
from psflow.ps_runtime.specs.arguments import NAME

__all__ = ["EvalName", "EvalParameters", "NamedEvalParameters"]

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
