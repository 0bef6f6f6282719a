"""What the page on extending psflow adds trains on a cluster, is evaluated, exported and predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extending import write_project
from tests.flows.conftest import Project


def test_the_pipeline_of_the_page(tmp_path: Path) -> None:
    labels = write_project(tmp_path)
    Project(tmp_path, timeout_secs=400).run("pipeline", "plane.yaml")
    parts = sorted((tmp_path / "runs/plane/predictions").glob("*/*.csv"))
    values = [float(line) for part in parts for line in part.read_text().splitlines()[1:]]
    assert values == pytest.approx(labels, abs=0.01)
