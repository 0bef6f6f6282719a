"""``psflow pipeline``."""

from __future__ import annotations

from flows.commands import BEGAN_AT
from flows.commands.options import Json, Settings
from flows.running.answer import Answer

__all__ = ["pipeline"]


def pipeline(settings: Settings, as_json: Json = False) -> Answer:
    """Train, evaluate, export and predict as CONF says; do only what is missing."""
    from flows.parameters.configuration import read_conf
    from flows.parameters.parsing import parse_as
    from flows.parameters.pipeline import PipelineParameters
    from ps_runtime.config.environment import telemetry_off

    conf = read_conf(settings)
    values = {**conf.settings.values, "pipeline": conf.sections.pipeline.model_dump(mode="json")}
    parameters = parse_as(PipelineParameters, values, conf.settings.origins)
    telemetry_off()
    from flows.running.head_start import head_start

    with head_start(BEGAN_AT):
        from flows.pipeline import pipeline
        from flows.watching.answers import shown_pipeline

        facts = pipeline(parameters, conf.settings)
    return Answer(facts, shown_pipeline(facts))
