"""The example of the distribute coordinator: a client that trains with the tasks that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished

pytestmark = pytest.mark.piece(number=2)


EXAMPLE = Path(__file__).parents[2] / "examples" / "coordinator.py"


@pytest.mark.cluster
def test_all_tasks_train_one_line(tmp_path: Path) -> None:
    model_dir = tmp_path / "model"
    done = subprocess.run(
        [sys.executable, EXAMPLE, "--model-dir", str(model_dir)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TF_CONFIG"},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *tasks, weight = done.stdout.splitlines()
    assert sorted(tasks) == [
        "chief 0 of 2 workers, is_chief=True",
        "evaluator 0 of 2 workers, is_chief=True",
        "worker 0 of 2 workers, is_chief=False",
    ]
    assert weight == "w = 3.000"
    finished = read_finished(str(model_dir))
    assert finished is not None
    assert finished.final_step == 300
    assert [record.global_step for record in EvaluationLog(str(model_dir)).read()] == [0, 300]
    assert not (model_dir / "tls").exists()
