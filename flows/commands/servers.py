"""Commands ``up``, ``down``, ``serve`` and ``role``: long-running processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer

from psflow.flows.commands import Json
from psflow.flows.output import Answer


def up(
    timeout: Annotated[float, typer.Option(min=0, metavar="SECS", help="Timeout for the servers to start.")] = 120.0,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth",
            help="Ask for no password. Then any client that can connect to MLflow can register code under the alias "
            "best, and any client that can connect to Prefect can run its own module as a deployment.",
        ),
    ] = False,
    upgrade: Annotated[
        bool,
        typer.Option(
            "--upgrade",
            help="Upgrade databases of an older Prefect or MLflow; copies them first, and names the copies.",
        ),
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Start Prefect and MLflow servers in the background.

    Servers that run already are kept. They ask for a password, which every psflow command knows; "login" is the address
    that logs a browser in.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.local_servers import up

    return Answer(up(timeout, with_password=not no_auth, upgrade=upgrade), has_password=True)


def down(
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECS", help="Timeout for the servers to stop before they are killed.")
    ] = 10.0,
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Stop the servers that psflow up started."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.local_servers import down

    return down(timeout)


def serve(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONF] [KEY=VALUE]",
            help="Configurations to serve, with their schedules, and overrides for all of them.",
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of concurrent runs.")] = None,
    as_json: Json = False,
) -> None:
    """Serve the flows in Prefect until Ctrl-C.

    Runs are started from the Prefect UI, or on the schedules of CONF.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.serve import serve

    serve(settings or (), limit)


def role(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="Python file that calls train_and_evaluate.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Passed to PROGRAM unchanged.")
    ] = None,
    ps_hosts: Annotated[
        str | None,
        typer.Option("--ps_hosts", "--ps-hosts", metavar="HOSTS", help="Each ps as host:port, separated by , or ;."),
    ] = None,
    worker_hosts: Annotated[
        str | None,
        typer.Option(
            "--worker_hosts",
            "--worker-hosts",
            metavar="HOSTS",
            help="The chief, and each worker, as host:port, separated by , or ;.",
        ),
    ] = None,
    job_name: Annotated[
        str | None,
        typer.Option("--job_name", "--job-name", metavar="NAME", help="This process: ps, worker or evaluator."),
    ] = None,
    task_index: Annotated[
        int | None,
        typer.Option(
            "--task_index", "--task-index", metavar="N", help="Index of this process among its hosts, from 0."
        ),
    ] = None,
) -> NoReturn:
    """Run PROGRAM as one role of a manual cluster.

    TF_CONFIG or the flags define the role. Options go before PROGRAM, which replaces this command: its output, its exit
    code.
    """
    from psflow.ps_runtime.config.environment import child_environment, tf_config, tf_config_settings
    from psflow.ps_runtime.errors import UsageError

    flags = {
        "--ps_hosts": ps_hosts,
        "--worker_hosts": worker_hosts,
        "--job_name": job_name,
        "--task_index": task_index,
    }
    text = _tf_config(flags, tf_config())
    if not os.path.isfile(program):
        raise UsageError((f"there is no file {program}; name the Python program to run",))
    sys.stdout.flush()
    sys.stderr.flush()
    settings = child_environment(tf_config_settings(text))
    os.execve(sys.executable, [sys.executable, program, *(arguments or ())], settings)


def _tf_config(flags: dict[str, Any], text: str | None) -> str:
    """Return TF_CONFIG of this process, from the flags or from the environment, validated.

    Raises UsageError if neither or both are given, or a flag is missing; ConfigError if TF_CONFIG is invalid or has no
    role.
    """
    from psflow.ps_runtime.errors import ConfigError, UsageError
    from psflow.ps_runtime.specs.cluster_task import parse_role_flags
    from psflow.ps_runtime.specs.tf_config import parse_tf_config

    missing = [name for name, value in flags.items() if value is None]
    if len(missing) < len(flags):
        if missing:
            raise UsageError((f"{', '.join(missing)} missing: a role needs {', '.join(flags)}, or TF_CONFIG",))
        if text is not None:
            raise UsageError(("expected either TF_CONFIG or flags to define the role, got both; unset one",))
        return parse_role_flags(*flags.values()).to_json()
    if text is None:
        raise UsageError((f"expected flags or TF_CONFIG for the role; give {', '.join(flags)}, or set TF_CONFIG",))
    task = parse_tf_config(text).task
    if task is None or task.role is None:
        raise ConfigError(("expected TF_CONFIG with cluster, and task.type of a role in it",))
    return text
