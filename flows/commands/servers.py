"""``psflow up``, ``down``, ``serve`` and ``role``: processes that stay."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer

from psflow.flows.commands import Json
from psflow.flows.output import Answer


def up(
    timeout: Annotated[float, typer.Option(min=0, metavar="SECS", help="How long to wait for the servers.")] = 120.0,
    no_auth: Annotated[
        bool,
        typer.Option(
            "--no-auth",
            help="Ask for no password. Then whoever can connect to MLflow can put code behind the alias best, and "
            "whoever can connect to Prefect can start a deployment with a module of his.",
        ),
    ] = False,
    upgrade: Annotated[
        bool,
        typer.Option(
            "--upgrade",
            help="Upgrade databases that an older Prefect or MLflow has made, and name the copies that are made first.",
        ),
    ] = False,
    as_json: Json = False,
) -> Answer:
    """Start a Prefect and an MLflow server on this machine in the background, unless there is one already.

    They ask for a password, which every psflow command knows; "login" is the address that logs a browser in.
    """
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.local_servers import up

    return Answer(up(timeout, with_password=not no_auth, upgrade=upgrade), has_password=True)


def down(
    timeout: Annotated[
        float, typer.Option(min=0, metavar="SECS", help="How long to wait for them to end before killing them.")
    ] = 10.0,
    as_json: Json = False,
) -> Mapping[str, Any]:
    """Stop the servers that psflow up started, and nothing else."""
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
    limit: Annotated[int | None, typer.Option(min=1, help="Maximum number of runs at one time.")] = None,
    as_json: Json = False,
) -> None:
    """Serve the flows in Prefect, to run from its UI or on the schedules of CONF, until Ctrl-C."""
    from psflow.ps_runtime.config.environment import prepare_environment

    prepare_environment()
    from psflow.flows.serve import serve

    serve(settings or (), limit)


def role(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="Python file that calls train_and_evaluate.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Of the program, taken as they are.")
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
    """Become one role of a cluster manually: run a program where TF_CONFIG, or these flags, say which.

    Options stand before PROGRAM. The program takes the place of this command: its output, its exit code.
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
    """Return TF_CONFIG of this process: what the flags mean, or what is there already, once it is understood.

    Raises
    ------
    UsageError
        If there is neither, or both, or not every flag; a ConfigError if what is there is wrong, or no role.
    """
    from psflow.ps_runtime.errors import ConfigError, UsageError
    from psflow.ps_runtime.specs.cluster_task import parse_role_flags
    from psflow.ps_runtime.specs.tf_config import parse_tf_config

    missing = [name for name, value in flags.items() if value is None]
    if len(missing) < len(flags):
        if missing:
            raise UsageError((f"{', '.join(missing)} missing: a role needs {', '.join(flags)}, or TF_CONFIG",))
        if text is not None:
            raise UsageError(("TF_CONFIG and flags both say which role this is; unset it, or leave the flags out",))
        return parse_role_flags(*flags.values()).to_json()
    if text is None:
        raise UsageError((f"nothing says which role this is; give {', '.join(flags)}, or set TF_CONFIG",))
    task = parse_tf_config(text).task
    if task is None or task.role is None:
        raise ConfigError(("TF_CONFIG names no role: expected cluster, and task.type of a role in it",))
    return text
