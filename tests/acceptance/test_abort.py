"""A training that somebody ends by two signals, without waiting for the first."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import wait_for
from tests.flows.conftest import ROOT, Project
from tests.flows.test_train import prefect_states

pytestmark = [pytest.mark.timeout(300), pytest.mark.cluster]


def test_a_second_signal_leaves_nothing_that_is_called_crashed(tmp_path: Path) -> None:
    project = Project(tmp_path)
    process = project.start("train", str(ROOT / "conf" / "digits.yaml"), "train.max_steps=200000")
    checkpoints = tmp_path / "runs" / "digits" / "checkpoints"
    wait_for(lambda: list(checkpoints.glob("step_00000300/manifest.json")), 150.0, "a checkpoint")
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, err
    assert "Traceback" not in err
    assert "aborted by a second SIGINT; run the same command again to resume" in err
    assert set(prefect_states(project, "flow_run").values()) == {"CANCELLED"}
    assert set(prefect_states(project, "task_run").values()) == {"CANCELLED"}
