"""What the pipeline flow can be told: everything that training is told, and its stages."""

from __future__ import annotations

from pydantic import Field

from flows.parameters.stages import StagesParameters
from flows.parameters.train import TrainParameters

__all__ = ["PipelineParameters"]


class PipelineParameters(TrainParameters):
    """Everything that a pipeline is told."""

    pipeline: StagesParameters = Field(StagesParameters(), description="What is done, one stage after the other.")

    def training(self) -> TrainParameters:
        """Return what the first stage is told."""
        return TrainParameters.model_validate(self.model_dump(mode="json", exclude={"pipeline"}))
