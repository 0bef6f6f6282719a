"""The parameters of the pipeline flow: those of training, and its stages."""

from __future__ import annotations

from pydantic import Field

from psflow.flows.parameters.configuration import Conf
from psflow.flows.parameters.parsing import parse_as
from psflow.flows.parameters.stages import EvaluateParameters, ExportParameters, StagesParameters
from psflow.flows.parameters.train import TrainParameters
from psflow.ps_runtime.specs.run_config import absolute


class PipelineParameters(TrainParameters):
    """The parameters of a pipeline."""

    pipeline: StagesParameters = Field(StagesParameters(), description="Stages to run, one after the other.")

    @property
    def directory(self) -> str:
        """Where is trained: the model_dir, or that of the fork, as an absolute path."""
        return absolute(self.resume.fork or self.model_dir)

    def training(self) -> TrainParameters:
        """Return the parameters of the first stage."""
        return TrainParameters.model_validate(self.model_dump(mode="json", exclude={"pipeline"}))

    def evaluation(self) -> EvaluateParameters:
        """Return the parameters of the stage evaluate."""
        stage = self.pipeline.evaluate.model_dump(mode="json")
        told = {"model_dir": self.directory, "cluster": {"address": self.cluster.address}}
        return EvaluateParameters.model_validate(stage | told)

    def export(self) -> ExportParameters:
        """Return the parameters of the stage export."""
        stage = self.pipeline.export
        told = {"model_dir": self.directory, "takes_alias": stage.metric is not None}
        return ExportParameters.model_validate(stage.model_dump(mode="json") | told)


def pipeline_parameters(conf: Conf) -> PipelineParameters:
    """Return what a configuration tells a pipeline; ConfigError if a key is wrong."""
    values = {**conf.settings.values, "pipeline": conf.sections.pipeline.model_dump(mode="json")}
    return parse_as(PipelineParameters, values, conf.settings.origins)
