"""``psflow export``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands import BEGAN_AT
from psflow.flows.commands.options import Json

__all__ = ["export"]


def export(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]",
            help="Configuration to use in place of the one in the model_dir, and overrides.",
        ),
    ] = None,
    model_dir: Annotated[str | None, typer.Option(metavar="DIR", help="model_dir of the training.")] = None,
    run_id: Annotated[str | None, typer.Option(metavar="RUN", help="Id of the MLflow run of the training.")] = None,
    checkpoint: Annotated[
        str, typer.Option(metavar="WHICH", help="Checkpoint to export: best, latest, or a step such as 600.")
    ] = "best",
    metric: Annotated[
        str | None,
        typer.Option(
            help="Choose the best checkpoint by this metric instead of best.metric, and move the alias best to it."
        ),
    ] = None,
    mode: Annotated[
        str | None, typer.Option(metavar="min|max", help="Whether a smaller or a larger value of --metric is better.")
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Export a checkpoint as an MLflow model, and register it."""
    from psflow.flows.parameters.configuration import source_settings
    from psflow.flows.parameters.export import parse_export_parameters
    from psflow.ps_runtime.config.environment import prepare_environment

    options = {"model_dir": model_dir, "run_id": run_id, "checkpoint": checkpoint, "metric": metric, "mode": mode}
    loaded = source_settings(settings or (), options)
    prepare_environment()
    parameters = parse_export_parameters(loaded.values, loaded.origins)
    from psflow.flows.starting.head_start import head_start

    with head_start(BEGAN_AT):
        from psflow.flows.export import export
        from psflow.flows.watching.answers import shown_export

        facts = export(parameters)
    return Answer(facts, shown_export(facts))
