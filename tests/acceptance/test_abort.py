"""A training that somebody ends by two signals, without waiting for the first; test_stop.py has the first."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import wait_for
from tests.flows.conftest import ROOT, Project
from tests.flows.interrupting import prefect_states

pytestmark = [pytest.mark.piece(number=4), pytest.mark.timeout(600), pytest.mark.cluster]


def started(project: Project) -> subprocess.Popen[str]:
    """Start a long training; return once it has a checkpoint."""
    process = project.start("train", str(ROOT / "conf" / "digits.yaml"), "train.max_steps=10000000")
    checkpoints = project.path / "runs" / "digits" / "checkpoints"
    wait_for(lambda: list(checkpoints.glob("step_00000300/manifest.json")), 150.0, "a checkpoint")
    return process


def test_a_second_signal_leaves_nothing_that_is_called_crashed(tmp_path: Path) -> None:
    for attempt in range(3):
        project = Project(tmp_path / str(attempt))
        process = started(project)
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGINT, err
        assert "Traceback" not in err
        if "ended by SIGINT" not in err:  # else the machine was so busy that both came as one
            break
    assert "aborted by a second SIGINT; run the same command again to resume" in err
    assert set(prefect_states(project, "flow_run").values()) == {"CANCELLED"}
    assert set(prefect_states(project, "task_run").values()) == {"CANCELLED"}
