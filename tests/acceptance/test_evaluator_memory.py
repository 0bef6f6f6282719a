"""An evaluator does not grow: over a hundred checkpoints, each evaluated on two inputs and exported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.piece(number=1)


MAX_MB = 5.0


@pytest.mark.timeout(1200)
def test_memory_of_an_evaluator_stays() -> None:
    program = [sys.executable, "-m", "tests.evaluator_memory", "100", "exports"]
    done = subprocess.run(program, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    grown = float(done.stdout.splitlines()[-1])
    print(f"an evaluator grew by {grown:.1f} MB over 100 checkpoints")
    assert grown < MAX_MB
