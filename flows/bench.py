"""The benchmarks, in a process of their own: they start and hold many others, and no flow imports them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ps_runtime.errors import RoleFailedError, UsageError

__all__ = ["BenchName", "bench"]

BenchName = Literal["mlp", "dense", "embedding", "predict", "checkpoint", "startup", "memory", "scaling"]

USAGE = 2
"""Exit code of a benchmark that cannot be run as asked."""


def bench(name: str, options: Sequence[str]) -> dict[str, Any]:
    """Run ``python -m benchmarks``; return its result. Text for people goes to stderr.

    Parameters
    ----------
    name : str
        Of the benchmark.
    options : sequence of str
        Further ones of that command line.

    Raises
    ------
    UsageError
        If it cannot be run as asked.
    RoleFailedError
        If it failed.
    """
    command = [sys.executable, "-m", "benchmarks", name, *options, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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
