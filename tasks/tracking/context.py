"""Context of a run: version of the user's code, and system metrics of the machine."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from psflow.ps_runtime.redaction import without_secrets

GIT_TIMEOUT_SECS = 5.0
"""Timeout of one git command; in a large uncached working copy it may take long, and training waits for it."""

STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")


def code_version(source: Path) -> dict[str, str]:
    """Return tags with the code version of a run, under the names that MLflow shows."""
    tags = {
        "mlflow.source.name": str(source),
        "mlflow.source.type": "LOCAL",
        "psflow.version": version("psflow"),
    }
    folder = source if source.is_dir() else source.parent
    status = _git(folder, *STATUS)
    if status is None:
        return tags
    lines = status.splitlines()
    head = dict(line[len("# branch.") :].split(" ", 1) for line in lines if line.startswith("# branch."))
    commit = head.get("oid", "(initial)")
    if commit != "(initial)":
        tags["mlflow.source.git.commit"] = commit
    if head.get("head", "(detached)") != "(detached)":
        tags["mlflow.source.git.branch"] = head["head"]
    tags["mlflow.source.git.dirty"] = str(any(not line.startswith("#") for line in lines)).lower()
    url = _git(folder, "remote", "get-url", "origin")
    return tags if not url else tags | {"mlflow.source.git.repoURL": without_secrets(url.strip())}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_SECS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):  # no git, no working copy, or a timeout
        return None
    return done.stdout


PREFIX = "system/"


class SystemMetrics:
    """Samples processors, memory, disk and network of this host.

    MLflow's own thread would use its own steps; these are recorded by global_step like all other metrics.
    """

    def __init__(self) -> None:
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        types: tuple[Any, ...] = (CPUMonitor, DiskMonitor, NetworkMonitor)
        self._monitors = [type_() for type_ in types]
        self.sample()  # processors are measured between samples

    def sample(self) -> dict[str, float]:
        """Return current metrics by names such as ``system/cpu_utilization_percentage``. Cheap."""
        values: dict[str, float] = {}
        for monitor in self._monitors:
            monitor.collect_metrics()
            values |= {PREFIX + name: float(value) for name, value in monitor.aggregate_metrics().items()}
            monitor.clear_metrics()
        return values
