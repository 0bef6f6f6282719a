"""The examples, run as a reader runs them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_linear_regression_finds_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "linear_regression.py"), run_name="__main__")
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("step 300: loss 0.000")
    assert said[1] == "w = 2.000, b = -0.999"
    assert [float(line.rpartition("= ")[2]) for line in said[2:]] == pytest.approx([-3, -1, 1], abs=0.02)


@pytest.mark.cluster
def test_digits_on_dask_are_recognised(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "digits_on_dask.py"],
        capture_output=True,
        text=True,
        cwd=EXAMPLES.parent,
        env={**os.environ, "DASK_TEMPORARY_DIRECTORY": str(tmp_path)},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    accuracies = {line.split()[1]: float(line.split()[-1]) for line in said if line.startswith("step")}
    assert list(accuracies) == ["0:", "200:", "400:", "600:"]
    assert accuracies["600:"] > 0.85
    ends = {line.partition(",")[0] for line in said if "finished" in line}
    assert ends == {f"{role}-0: finished" for role in ("ps", "chief", "worker", "evaluator")}


def test_record_files_are_the_same_in_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for run in ("a", "b"):
        monkeypatch.setattr(sys, "argv", ["record_files.py", str(tmp_path / run)])
        runpy.run_path(str(EXAMPLES / "record_files.py"), run_name="__main__")
        written.append({path.name: path.read_bytes() for path in (tmp_path / run).iterdir()})
    assert set(written[0]) == {"census.csv", "census.parquet", "housing.csv", "housing.parquet"}
    assert written[0] == written[1]
