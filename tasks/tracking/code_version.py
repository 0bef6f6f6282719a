"""Which version of the user's code is trained: what git knows of the directory that it lies in."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

from psflow.ps_runtime.redaction import without_secrets

__all__ = ["code_version"]

GIT_TIMEOUT_SECS = 5.0
"""For one question to git; in a large working copy that is not cached it may take long, and training waits for it."""

STATUS = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")


def code_version(source: Path) -> dict[str, str]:
    """Return tags of a run that say which code it ran, under the names that MLflow shows."""
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
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):  # no git, no working copy, too slow
        return None
    return done.stdout
