"""What the page on extending psflow adds trains on a cluster, is evaluated, exported and predicts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.extending import write_project
from tests.flows.conftest import Project

pytestmark = pytest.mark.piece(number=5)


def test_the_pipeline_of_the_page(served_project: Project, tmp_path: Path) -> None:
    labels = write_project(tmp_path)
    served_project.run("pipeline", "plane.yaml")
    [output] = (tmp_path / "runs/plane/predictions").iterdir()
    [values] = pd.read_parquet(output).to_numpy().T
    assert values == pytest.approx(labels, abs=0.01)
