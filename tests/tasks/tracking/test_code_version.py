"""Code version of a run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from psflow.tasks.tracking import context as module
from psflow.tasks.tracking.context import code_version

pytestmark = pytest.mark.process


MINE = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    command = ["git", *identity, *arguments]
    return subprocess.run(
        command, cwd=folder, env=os.environ | MINE, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A working copy with one commit; return the file of the model."""
    model = tmp_path / "my models" / "price.py"
    model.parent.mkdir()
    model.write_text("x = 1\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return model


def test_commit_and_branch_of_the_code(code: Path) -> None:
    tags = code_version(code)
    assert tags["mlflow.source.git.commit"] == git(code.parent, "rev-parse", "HEAD")
    assert tags["mlflow.source.git.branch"] == "main"
    assert tags["mlflow.source.git.dirty"] == "false"
    assert tags["mlflow.source.name"] == str(code)
    assert tags["psflow.version"]
    assert code_version(code.parent)["mlflow.source.git.commit"] == tags["mlflow.source.git.commit"]


def test_code_that_was_changed_since_is_dirty(code: Path) -> None:
    code.write_text("x = 2\n")
    assert code_version(code)["mlflow.source.git.dirty"] == "true"


def test_address_of_the_repository_without_its_password(code: Path) -> None:
    git(code.parent, "remote", "add", "origin", "https://bob:s3cret@host/a.git")
    assert code_version(code)["mlflow.source.git.repoURL"] == "https://host/a.git"


def test_nothing_committed_yet(tmp_path: Path) -> None:
    git(tmp_path, "init")
    tags = code_version(tmp_path)
    assert "mlflow.source.git.commit" not in tags
    assert tags["mlflow.source.git.dirty"] == "false"


@pytest.mark.parametrize("reason", ["no working copy", "no git"])
def test_where_git_says_nothing(tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert set(code_version(tmp_path)) == {"mlflow.source.name", "mlflow.source.type", "psflow.version"}


def test_git_that_does_not_answer(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GIT_TIMEOUT_SECS", 1e-9)
    assert "mlflow.source.git.commit" not in code_version(code)
