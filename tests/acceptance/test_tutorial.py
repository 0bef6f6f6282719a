"""The tutorial, from its first command to its last, as a reader types them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.acceptance.conftest import wait_for
from tests.flows.conftest import PSFLOW, Project
from tests.tutorial import commands, write_files

pytestmark = [pytest.mark.piece(number=3), pytest.mark.ci, pytest.mark.timeout(900)]

SECS = 300
"""Only ends a command that hangs."""


def test_every_step_works(tmp_path: Path) -> None:
    project = Project(tmp_path, timeout_secs=SECS)
    write_files(tmp_path)
    answers = {}
    try:
        for program, *words in commands():
            if program == "python":
                subprocess.run([sys.executable, *words], cwd=tmp_path, check=True)
            elif words[0] == "serve":
                serve(project, words)
            else:
                answers[words[0]] = project.run(*words)
    finally:
        stopped = project.run("down")["stopped"]
    assert stopped == []  # the tutorial has done that
    assert answers["train"]["final_step"] == 3000
    assert answers["train"]["best"]["metrics"]["mae"] < 6
    assert len(pd.read_parquet(tmp_path / "predictions")) == 1000


def serve(project: Project, words: list[str]) -> None:
    """Serve until the training is known, and end that with Ctrl-C."""
    log = project.path / "serve.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [PSFLOW, *words], cwd=project.path, env=project.environment, stdout=stream, stderr=stream
        )
    try:
        wait_for(lambda: "serving train/houses-nightly, on its schedule" in log.read_text(), SECS, "psflow serve")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SECS)
