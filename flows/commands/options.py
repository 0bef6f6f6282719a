"""Options that commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["Json", "Overrides", "Settings"]

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object as the last line of stdout, and everything else to stderr."),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]", help="Overrides, such as cluster.workers=4 (Dask workers).")
]
Settings = Annotated[
    list[str], typer.Argument(metavar="CONF [KEY=VALUE]", help="YAML files and overrides; later ones win.")
]
