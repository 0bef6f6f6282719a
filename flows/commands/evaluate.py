"""``psflow evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from flows.commands import BEGAN_AT
from flows.commands.options import Json
from flows.running.answer import Answer

__all__ = ["evaluate"]


def evaluate(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]",
            help="Configuration to use instead of that in the model_dir, and changes of it, such as "
            "evals.other.input.path=other.csv; cluster.address and cluster.workers say where to evaluate.",
        ),
    ] = None,
    model_dir: Annotated[str | None, typer.Option(metavar="DIR", help="Where the training wrote to.")] = None,
    run_id: Annotated[str | None, typer.Option(metavar="RUN", help="MLflow run of the training.")] = None,
    checkpoints: Annotated[
        str, typer.Option(metavar="WHICH", help="all, latest, best, last:5, 1000..9000, or steps: 300,600.")
    ] = "all",
    force: Annotated[bool, typer.Option("--force", help="Evaluate again what is in the record already.")] = False,
    record: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the record is kept, if not in the model_dir.")
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Evaluate old checkpoints against any data, in parallel on the cluster."""
    from flows.parameters.checkpoints import source_settings
    from flows.parameters.evaluate import parse_evaluate_parameters
    from ps_runtime.config.environment import telemetry_off
    from ps_runtime.errors import EvaluationFailedError

    options = {"model_dir": model_dir, "run_id": run_id, "checkpoints": checkpoints, "force": force, "record": record}
    loaded = source_settings(settings or (), options)
    telemetry_off()
    parameters = parse_evaluate_parameters(loaded.values, loaded.origins)
    from flows.running.head_start import head_start

    with head_start(BEGAN_AT):
        from flows.evaluate import evaluate

        try:
            facts = evaluate(parameters)
        except EvaluationFailedError as error:
            return Answer(error.facts, [*_lines(error.facts), *str(error).splitlines()], exit_code=1)
    return Answer(facts, _lines(facts))


def _lines(facts: Mapping[str, Any]) -> list[str]:
    lines = [
        f"step {row['step']:<8} {row['eval']:<12} "
        + ", ".join(f"{name} {value:.4g}" for name, value in row["metrics"].items())
        for row in facts["results"]
    ]
    lines.append(f"{facts['num_evaluated']} evaluated, {facts['num_known']} were in the record already")
    if facts["run_id"] is not None:
        lines.append(f"MLflow run {facts['run_id']}")
    return lines
