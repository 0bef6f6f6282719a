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
    pairs: Annotated[int, typer.Option(min=1, help="Measurements of each system, taken in turn.")] = 9,
    starts: Annotated[int, typer.Option(min=1, help="How often the systems are started afresh for them.")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="One case, two short pairs, no peer: shows that it runs.")
    ] = False,
    case: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Only cases like this one; may be given again.")
    ] = None,
    output: Annotated[str, typer.Option(metavar="DIR", help="Where the plot and the numbers go.")] = "runs/bench",
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Measure psflow beside its limits, and beside TensorFlow Estimator where that is installed."""
    from psflow.flows.looking.bench import bench

    options = ["--pairs", str(pairs), "--starts", str(starts), "--output", output]
    options += ["--quick"] * quick + [f"--case={pattern}" for pattern in case or ()]
    answer = bench(name, options)
    return answer if as_json else {"bench": name, "cases": len(answer["rows"]), "output": output}
