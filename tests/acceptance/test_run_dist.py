"""A migrated program in all its roles, started by the launcher of the examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished

pytestmark = pytest.mark.piece(number=2)


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.cluster
def test_a_migrated_program_trains_in_all_roles_and_ends(tmp_path: Path) -> None:
    command = [sys.executable, EXAMPLES / "run_dist.py", "--host-flags", EXAMPLES / "migrated" / "roles.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    roles = {line.partition(":")[0] for line in done.stdout.splitlines()}
    assert roles == {"ps-0", "chief-0", "worker-0", "worker-1", "evaluator-0"}
    model_dir = tmp_path / "runs" / "migrated"
    finished = read_finished(str(model_dir))
    assert finished is not None
    assert finished.final_step == 500
    assert EvaluationLog(str(model_dir)).read()[-1].global_step == 500
    assert not (model_dir / "tls").exists()
