"""The keys of the flow that evaluates old checkpoints, alone or as a stage of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from psflow.flows.parameters.base import FlowParameters
from psflow.flows.parameters.checkpoints import Checkpoints, CheckpointSource
from psflow.flows.parameters.cluster import EvaluateClusterParameters
from psflow.flows.parameters.parsing import parse_as
from psflow.ps_runtime.config.files import Origin

__all__ = ["EvaluateChoice", "EvaluateParameters", "parse_evaluate_parameters"]


class EvaluateChoice(FlowParameters):
    """Which checkpoints are evaluated."""

    checkpoints: Checkpoints = Field(
        "all", description="Checkpoints to evaluate: all, latest, best, last:5, 1000..9000, or steps such as 300,600."
    )


class EvaluateParameters(EvaluateChoice, CheckpointSource):
    """The parameters of an evaluation flow."""

    force: bool = Field(False, description="Evaluate again what the record already holds.")
    record: str | None = Field(
        None, min_length=1, description="Directory of the record (evaluations.jsonl); null: model_dir."
    )
    cluster: EvaluateClusterParameters = Field(EvaluateClusterParameters(), description="Cluster to evaluate on.")


def parse_evaluate_parameters(values: Mapping[str, Any], origins: Mapping[str, Origin]) -> EvaluateParameters:
    """Check settings, and return them as parameters of the evaluation flow; see `parse_as`."""
    return parse_as(EvaluateParameters, values, origins)
