"""``psflow evaluate``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.answering.exit_codes import ExitCode, recorded
from psflow.flows.commands import BEGAN_AT
from psflow.flows.commands.options import Json

__all__ = ["evaluate"]


def evaluate(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]",
            help="Configuration to use in place of the one in the model_dir, and overrides, such as "
            "evals.other.input.path=other.csv; cluster.address names a Dask scheduler to evaluate on, "
            "cluster.workers=4 sets the number of Dask workers of a cluster on this machine.",
        ),
    ] = None,
    model_dir: Annotated[str | None, typer.Option(metavar="DIR", help="model_dir of the training.")] = None,
    run_id: Annotated[str | None, typer.Option(metavar="RUN", help="Id of the MLflow run of the training.")] = None,
    checkpoints: Annotated[
        str,
        typer.Option(
            metavar="WHICH",
            help="Checkpoints to evaluate: all, latest, best, last:5, 1000..9000, or steps such as 300,600.",
        ),
    ] = "all",
    force: Annotated[bool, typer.Option("--force", help="Evaluate again what the record already holds.")] = False,
    record: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the record of evaluations; default: the model_dir.")
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Evaluate old checkpoints against any data, in parallel on the cluster."""
    from psflow.flows.parameters.configuration import source_settings
    from psflow.flows.parameters.evaluate import parse_evaluate_parameters
    from psflow.ps_runtime.config.environment import prepare_environment
    from psflow.ps_runtime.errors import EvaluationFailedError

    options = {"model_dir": model_dir, "run_id": run_id, "checkpoints": checkpoints, "force": force, "record": record}
    loaded = source_settings(settings or (), options)
    prepare_environment()
    parameters = parse_evaluate_parameters(loaded.values, loaded.origins)
    from psflow.flows.starting.head_start import head_start

    with head_start(BEGAN_AT):
        from psflow.flows.evaluate import evaluate
        from psflow.flows.watching.answers import shown_evaluations

        try:
            facts = evaluate(parameters)
        except EvaluationFailedError as error:
            lines = [*shown_evaluations(error.facts), *str(error).splitlines()]
            return Answer(error.facts, lines, ExitCode.FAILED)
    return Answer(facts, shown_evaluations(facts), recorded(facts))
