"""Arguments and options of the commands of ``psflow``.

The commands import Prefect, MLflow and Dask inside their functions, so that help is fast.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

BEGAN_AT = time.monotonic()
"""Start time of this process, after its first imports."""


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
