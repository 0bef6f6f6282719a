"""Runs the benchmarks in a separate process: they start many processes, and no flow imports them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.errors import RoleFailedError, UsageError

BenchName = Literal[
    "mlp",
    "dense",
    "torch",
    "embedding",
    "clicks",
    "input",
    "predict",
    "checkpoint",
    "startup",
    "accuracy",
    "memory",
    "growth",
    "recovery",
    "scaling",
]

USAGE = 2
"""Exit code of an invalid benchmark request."""
CHECKOUT = Path(__file__).resolve().parents[2]
"""Directory of the benchmarks in a checkout of psflow."""


def bench(name: str, options: Sequence[str]) -> dict[str, Any]:
    """Run ``python -m benchmarks``; return its result. Its other output goes to stderr.

    Raises
    ------
    UsageError
        If the request is invalid, or the installed package has no benchmarks.
    RoleFailedError
        If it failed.
    """
    command = [sys.executable, "-m", "benchmarks", name, *options, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
        try:
            output, _ = process.communicate()
        except BaseException:  # a signal: the child must end its processes first
            process.terminate()
            raise
    answer: dict[str, Any] = json.loads(output.splitlines()[-1]) if output else {}
    if process.returncode == 0 and answer:
        return answer
    error: Mapping[str, Any] = answer.get("error") or {"message": f"it ended with exit code {process.returncode}"}
    if process.returncode == USAGE:
        raise UsageError((error["message"],))
    raise RoleFailedError(f"bench {name}", error["message"])


def _environment() -> dict[str, str]:
    """Return an environment for the benchmarks of this checkout, independent of the working directory."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise UsageError(
            (
                f"the benchmarks are not part of the installed package, and {CHECKOUT} is not a checkout of psflow; "
                "install it from one: pip install -e PATH",
            )
        )
    environment = child_environment({"PYTHONSAFEPATH": "1"})  # ignores a `benchmarks` package in the working directory
    path = [str(CHECKOUT), environment.get("PYTHONPATH", "")]
    return environment | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
