"""``psflow bench``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

import typer

from psflow.flows.commands.options import Json
from psflow.flows.looking.bench import BenchName

__all__ = ["bench"]


def bench(
    name: Annotated[BenchName, typer.Argument(metavar="NAME", help=f"One of {', '.join(get_args(BenchName))}.")],
    pairs: Annotated[
        int, typer.Option(min=1, help="Number of measurements of each system; the systems take turns.")
    ] = 9,
    starts: Annotated[int, typer.Option(min=1, help="Number of times that each system is started for them.")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure one case in two short pairs without a peer, to see that it works.")
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN", help="Measure only the cases that match; repeat the option for several patterns."
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Number of records of the log of clicks; of the benchmark clicks alone.")
    ] = 1_000_000,
    output: Annotated[str, typer.Option(metavar="DIR", help="Directory for the plot and the numbers.")] = "runs/bench",
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Measure psflow against its limits, and against TensorFlow Estimator where it is installed."""
    from psflow.flows.looking.bench import bench

    options = ["--pairs", str(pairs), "--starts", str(starts), "--rows", str(rows), "--output", output]
    options += ["--quick"] * quick + [f"--case={pattern}" for pattern in case or ()]
    answer = bench(name, options)
    return answer if as_json else {"bench": name, "cases": len(answer["rows"]), "output": output}
