"""Every benchmark runs: each of its quick measurements gives numbers."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from tests.flows.conftest import ROOT

pytestmark = [pytest.mark.piece(number=8), pytest.mark.timeout(600)]

LONG = {"predict", "scaling", "startup"}
"""Those that take more than 10 CPU seconds."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in LONG else pytest.mark.ci) for name in NAMES])
def test_a_quick_benchmark_gives_numbers(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--json", "--output", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["bench"] == name
    assert facts["rows"] != []
    for row in facts["rows"]:
        assert math.isfinite(row["psflow"]), row
    assert {path.name for path in tmp_path.iterdir()} >= {f"{name}.json", f"{name}.png"}
