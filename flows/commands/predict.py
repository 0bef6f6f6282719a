"""``psflow predict``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands import BEGAN_AT
from psflow.flows.commands.options import Json, Overrides

__all__ = ["predict"]


def predict(
    model: Annotated[
        str, typer.Option(metavar="URI", help="URI of an MLflow model, such as models:/psflow-digits@best.")
    ],
    data: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="PATH",
            help="File, folder, glob or URL to score: CSV, TSV, Parquet, Arrow, JSON lines, npz, IDX, or another "
            "format with the override format=NAME, which a folder needs; or digits:test.",
        ),
    ],
    output: Annotated[
        str, typer.Option(metavar="DIR", help="Directory for the predictions, one row per row of the input.")
    ],
    overrides: Overrides = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Count files, rows and partitions, and show the columns of the output; write nothing."
        ),
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Score every row of a file with a model, exactly once, in file order, in parallel on a cluster."""
    from psflow.flows.parameters.predict import PredictParameters, parse_predict_parameters
    from psflow.flows.parameters.text_keys import text_keys
    from psflow.ps_runtime.config.environment import prepare_environment
    from psflow.ps_runtime.config.files import Origin, Settings, load

    options = {"model": model, "input": data, "output": output}
    origins = {name: Origin(f"--{name}") for name in options}
    loaded = load([], overrides or (), text_keys(PredictParameters)).merged(Settings(options, origins))
    parameters = parse_predict_parameters(loaded.values, loaded.origins)
    prepare_environment()
    if dry_run:
        from psflow.flows.predict import dry_run as look
        from psflow.flows.watching.answers import shown_dry_run

        facts = look(parameters)
        return Answer(facts, shown_dry_run(facts))
    from psflow.flows.starting.head_start import head_start

    with head_start(BEGAN_AT):
        from psflow.flows.predict import predict
        from psflow.flows.watching.answers import shown_predictions

        facts = predict(parameters)
    return Answer(facts, shown_predictions(facts))
