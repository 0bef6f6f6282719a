"""``psflow pipeline``."""

from __future__ import annotations

from collections.abc import Mapping

from psflow.flows.answering.answer import Answer
from psflow.flows.answering.exit_codes import recorded
from psflow.flows.commands import BEGAN_AT
from psflow.flows.commands.options import Json, Settings

__all__ = ["pipeline"]


def pipeline(settings: Settings, as_json: Json = False) -> Answer:
    """Train, evaluate, export and predict as CONF says; do only what is missing."""
    from psflow.flows.parameters.configuration import read_conf
    from psflow.flows.parameters.pipeline import pipeline_parameters
    from psflow.ps_runtime.config.environment import prepare_environment

    conf = read_conf(settings)
    parameters = pipeline_parameters(conf)
    prepare_environment()
    from psflow.flows.starting.head_start import head_start

    with head_start(BEGAN_AT):
        from psflow.flows.pipeline import pipeline
        from psflow.flows.watching.answers import shown_pipeline

        facts = pipeline(parameters, conf.settings)
    stages = [stage for stage in facts.values() if isinstance(stage, Mapping)]
    return Answer(facts, shown_pipeline(facts), recorded(*stages))
