"""Every benchmark runs: its quick measurement gives numbers, and compares them with the limit."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.peers.fashion import FOLDER
from tests.flows.conftest import ROOT

pytestmark = [pytest.mark.piece(number=8), pytest.mark.timeout(600)]

WITHOUT_LIMIT = {"accuracy", "clicks"}
"""Those that are compared with peers only."""


@pytest.mark.ci
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_benchmark_gives_numbers(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--json", "--output", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if name == "accuracy" and not Path(FOLDER).is_dir():
        assert "install Debian's package dataset-fashion-mnist" in done.stderr
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    assert facts["bench"] == name
    assert facts["rows"] != []
    for row in facts["rows"]:
        assert math.isfinite(row["psflow"]), row
    ratios = [row["ratio_limit"] for row in facts["rows"] if row["ratio_limit"] is not None]
    assert bool(ratios) != (name in WITHOUT_LIMIT)
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios), ratios
    assert {path.name for path in tmp_path.iterdir()} >= {f"{name}.json", f"{name}.png"}
