"""``psflow init``."""

from __future__ import annotations

from typing import Annotated

import typer

from psflow.flows.answering.answer import Answer
from psflow.flows.commands.options import Json

__all__ = ["init"]

Reading = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]", help="How the files are read, such as encoding=latin-1 or columns.zip.type=string."
    ),
]


def init(
    data: Annotated[str, typer.Argument(metavar="DATA", help="File, folder, glob or URL of records with columns.")],
    overrides: Reading = None,
    *,
    label: Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict.")],
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where the configuration goes; default: DATA.yaml, here.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="DNNClassifier, LinearClassifier, DNNRegressor or LinearRegressor."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="csv, tsv, parquet, arrow, jsonl or libsvm; default: as the suffixes say."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: Json = False,
) -> Answer:
    """Write a first configuration for record files, ready to train: guesses, each with its reason in a comment.

    It reads the first 100,000 records at most.
    """
    from psflow.flows.drafting.init import init

    return init(data, label, overrides or (), output=output, model=model, format_name=format, overwrites=force)
