"""Commands ``status``, ``scale``, ``diff``, ``config``, ``doctor``, ``clean`` and ``bench``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args

import typer

from psflow.flows.commands import Json, Settings
from psflow.flows.inspect.bench import BenchName
from psflow.flows.output import Answer
from psflow.ps_runtime.errors import UsageError

JOB = "A running job: its model_dir, or its MLflow run by id, a prefix of the id, or name."


def status(
    job: Annotated[str | None, typer.Argument(metavar="JOB", help=f"{JOB} Default: all jobs.")] = None,
    as_json: Json = False,
) -> Answer:
    """Show servers, running jobs, speeds and stragglers."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.inspect.runs import status

    return status(job)


def scale(
    job: Annotated[str, typer.Argument(metavar="JOB", help=JOB)],
    workers: Annotated[int, typer.Argument(metavar="N", min=0, help="Number of workers besides the chief.")],
    as_json: Json = False,
) -> Answer:
    """Change the number of workers of a running job.

    More workers, up to cluster.max_workers, begin as the cluster has slots for them. Fewer workers lose no work.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.inspect.runs import scale

    return scale(job, workers)


Run = Annotated[
    str, typer.Argument(metavar="RUN", help="An MLflow run: its id, a unique prefix of its id, or its name.")
]


def diff(
    first: Run,
    second: Run,
    shows_all: Annotated[bool, typer.Option("--all", help="Also show metrics of roles, processor and memory.")] = False,
    as_json: Json = False,
) -> Answer:
    """Show the differences between two runs.

    Compares configuration, data, code and final metrics.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.inspect.runs import diff

    return diff(first, second, shows_all=shows_all)


def config(
    settings: Settings,
    origin: Annotated[bool, typer.Option("--origin", help="Show the file, line or flag that set each value.")] = False,
    as_json: Json = False,
) -> Answer:
    """Show the configuration: CONF and the defaults."""
    from psflow.flows.inspect.config import config

    return config(settings, with_origins=origin)


def doctor(
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Address of a Dask scheduler; default: start a small cluster on this machine."
        ),
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Check versions, disk, servers and a cluster.

    Shows a remedy for each fault; exit code 1 on a fault.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.inspect.doctor import doctor

    return doctor(address)


def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what can be removed, and remove nothing; the default.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what is not needed.")] = False,
    as_json: Json = False,
) -> Answer:
    """Show disk usage, and remove what is not needed.

    Covers runs/, the MLflow store and old exports.
    """
    if dry_run and yes:
        raise UsageError(("expected either --dry-run or --yes, got both",))
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.inspect.clean import clean

    return clean(removes=yes)


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
    """Measure psflow against its limits and TensorFlow.

    TensorFlow Estimator is measured if it is installed.
    """
    from psflow.flows.inspect.bench import bench

    options = ["--pairs", str(pairs), "--starts", str(starts), "--rows", str(rows), "--output", output]
    options += ["--quick"] * quick + [f"--case={pattern}" for pattern in case or ()]
    answer = bench(name, options)
    return answer if as_json else {"bench": name, "cases": len(answer["rows"]), "output": output}
