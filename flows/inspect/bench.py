"""The benchmarks, in a process of their own: they start and hold many others, and no flow imports them."""

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
    "mlp", "dense", "embedding", "clicks", "input", "predict", "checkpoint", "startup", "memory", "recovery", "scaling"
]

USAGE = 2
"""Exit code of a benchmark that cannot be run as asked."""
CHECKOUT = Path(__file__).resolve().parents[2]
"""Where the benchmarks are, if psflow runs from a checkout."""


def bench(name: str, options: Sequence[str]) -> dict[str, Any]:
    """Run ``python -m benchmarks``; return its result. Text for people goes to stderr.

    Raises
    ------
    UsageError
        If it cannot be run as asked, or if there are no benchmarks beside this package.
    RoleFailedError
        If it failed.
    """
    command = [sys.executable, "-m", "benchmarks", name, *options, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment()) as process:
        try:
            output, _ = process.communicate()
        except BaseException:  # a signal: it is to end what it has started before we go
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
    """Return an environment in which any directory will do to run the benchmarks of this checkout."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise UsageError(
            (
                f"the benchmarks are not part of the installed package, and {CHECKOUT} is not a checkout of psflow; "
                "install it from one: pip install -e PATH",
            )
        )
    environment = child_environment({"PYTHONSAFEPATH": "1"})  # `benchmarks` of whoever works here are other ones
    path = [str(CHECKOUT), environment.get("PYTHONPATH", "")]
    return environment | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
