"""The shell completes commands and options, without importing what they need."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.flows.conftest import PSFLOW

pytestmark = pytest.mark.process


def ask(tmp_path: Path, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        ["bash", "-c", '"$@"; exit $?', "bash", PSFLOW, *arguments],  # it asks which shell has started it
        cwd=tmp_path,
        env=os.environ | {"HOME": str(tmp_path)} | variables,
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("psflow do", ["doctor", "down"]),
        ("psflow doctor --a", ["--address"]),
        ("psflow config --", ["--help", "--json", "--origin"]),
        ("psflow train conf/di", []),  # a file: the shell completes those by itself
    ],
)
def test_bash_completes_commands_and_options(tmp_path: Path, words: str, completed: list[str]) -> None:
    index = str(words.count(" "))
    found = ask(tmp_path, _PSFLOW_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=index)
    assert sorted(found.split()) == completed


def test_completion_is_installed_for_the_shell_of_the_user(tmp_path: Path) -> None:
    assert "bash completion installed" in ask(tmp_path, "--install-completion", "bash", SHELL="/bin/bash")
    assert "psflow.sh" in (tmp_path / ".bashrc").read_text()
    assert "complete -o default -F _psflow_completion psflow" in (tmp_path / ".bash_completions/psflow.sh").read_text()
