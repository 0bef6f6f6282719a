"""What ``psflow serve`` serves: each flow as it is, and those of a configuration with its parameters and schedule."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from prefect import Flow
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType

from psflow.flows.parameters.configuration import Conf, read_conf
from psflow.flows.parameters.pipeline import PipelineParameters, pipeline_parameters
from psflow.flows.parameters.resolved_config import resolve
from psflow.flows.planning.schedules import schedule_of
from psflow.flows.prefect_runs.overlap import overlap_tag
from psflow.ps_runtime.config.files import is_override
from psflow.ps_runtime.errors import ConfigError, UsageError
from psflow.ps_runtime.redaction import secret_keys
from psflow.tasks.orphaned_runs import FLOW_RUN_TAG

__all__ = ["FLOWS", "configured", "general"]

FLOWS = ("pipeline", "train", "evaluate", "export", "predict")
OF_A_CONFIGURATION = ("pipeline", "train")


def general() -> list[RunnerDeployment]:
    """Return a deployment of each flow, under its own name: all parameters are asked for."""
    return [_deployment(name, name, {}, [FLOW_RUN_TAG], None) for name in FLOWS]


def configured(arguments: Sequence[str]) -> list[RunnerDeployment]:
    """Return the deployments of configurations, named after their experiments.

    Raises
    ------
    ConfigError
        If one of them, or its schedule, is wrong.
    UsageError
        If two are of one experiment, or there is nothing to change.
    """
    overrides = [text for text in arguments if is_override(text)]
    files = [text for text in arguments if text not in overrides]
    if overrides and not files:
        raise UsageError((f"{overrides[0]}: expected a configuration file to override, such as conf/digits.yaml",))
    deployments: list[RunnerDeployment] = []
    experiments: dict[str, str] = {}
    for file in files:
        conf = read_conf([file, *overrides])
        experiment = pipeline_parameters(conf).experiment
        if experiment in experiments:
            raise UsageError(
                (f"{experiments[experiment]} and {file} both name the experiment {experiment!r}; rename one",)
            )
        experiments[experiment] = file
        deployments += _of(conf)
    return deployments


def _of(conf: Conf) -> list[RunnerDeployment]:
    parameters = pipeline_parameters(conf)
    _check_no_secrets(conf, parameters)
    training = resolve(parameters.training()).model_dump(mode="json")
    told: dict[str, dict[str, Any]] = {
        "train": training,
        "pipeline": training | {"pipeline": parameters.pipeline.model_dump(mode="json")},
    }
    wanted = conf.sections.schedule
    tags = [FLOW_RUN_TAG, parameters.experiment]
    schedules: dict[str, Schedule] = {}
    overlap: dict[str, list[str]] = {}
    if wanted is not None:
        schedules[wanted.flow] = schedule_of(wanted, conf.settings.origins)
        overlap[wanted.flow] = [overlap_tag(wanted.overlap)]
    return [
        _deployment(
            name,
            parameters.experiment,
            {"parameters": told[name]},
            [*tags, *overlap.get(name, ())],
            schedules.get(name),
        )
        for name in OF_A_CONFIGURATION
    ]


def _check_no_secrets(conf: Conf, parameters: PipelineParameters) -> None:
    """Refuse credentials: Prefect shows the parameters of a deployment to whoever sees its pages, and keeps them."""
    keys = secret_keys(parameters.model_dump(mode="json"))
    if keys:
        raise ConfigError(
            tuple(
                f"{conf.settings.origin(key) or 'a default'}: {key}: expected no credentials in what is served, which "
                "Prefect keeps and shows; give them to fsspec by its configuration files or environment variables"
                for key in keys
            )
        )


def _deployment(
    flow_name: str, name: str, parameters: dict[str, Any], tags: list[str], schedule: Schedule | None
) -> RunnerDeployment:
    module = importlib.import_module(f"psflow.flows.{flow_name}")
    flow: Flow[Any, Any] = getattr(module, f"{flow_name}_flow")
    deployment = RunnerDeployment.from_flow(
        flow,
        name=name,
        parameters=parameters,
        tags=tags,
        schedule=schedule,
        entrypoint_type=EntrypointType.MODULE_PATH,  # wherever psflow is installed, and whatever the directory is
    )
    schema = deployment._parameter_openapi_schema  # there is no public way
    _meant_first({"properties": schema.properties}, parameters, schema.definitions)
    return deployment


def _meant_first(schema: dict[str, Any], value: Any, definitions: Mapping[str, Any]) -> None:
    """Let each choice in a schema begin with the alternative that `value` is: among equals, forms open the first one.

    The Prefect UI counts the keys that a value shares with an alternative, and all models have the same two.
    """
    schema = _resolved(schema, definitions)
    if "anyOf" in schema:
        choice = schema["anyOf"]
        meant = next((each for each in choice if _fits(_resolved(each, definitions), value)), choice[0])
        choice.insert(0, choice.pop(choice.index(meant)))
        schema = _resolved(meant, definitions)
    if isinstance(value, Mapping):
        for key in schema.get("properties", {}).keys() & value.keys():
            _meant_first(schema["properties"][key], value[key], definitions)


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    """Return whether `value` is a mapping that has keys of `schema` alone, and what chooses that alternative."""
    fields = schema.get("properties", {})
    return isinstance(value, Mapping) and all(
        key in fields and each in fields[key].get("enum", [each]) for key, each in value.items()
    )


def _resolved(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found
