"""The examples, run as a reader runs them."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import LocalCluster

from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.model.evaluation import read_values

pytestmark = pytest.mark.process


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
        monkeypatch.setattr(sys, "argv", ["tabular_files.py", str(tmp_path / run)])
        runpy.run_path(str(EXAMPLES / "tabular_files.py"), run_name="__main__")
        written.append({path.name: path.read_bytes() for path in (tmp_path / run).iterdir()})
    assert set(written[0]) == {"census.csv", "census.parquet", "housing.csv", "housing.parquet"}
    assert written[0] == written[1]


@pytest.fixture
def migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Return what runs migrated programs in a directory of the test, and returns the model_dir of each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.syspath_prepend(str(EXAMPLES / "migrated"))
    level = logging.getLogger().level

    def run(name: str, *flags: str) -> Path:
        monkeypatch.setattr(sys, "argv", [name, *flags])
        program = runpy.run_path(str(EXAMPLES / "migrated" / name), run_name="__main__")
        return tmp_path / program["model_dir"]

    yield run
    logging.getLogger().setLevel(level)
    sys.modules.pop("model", None)


def check_predictions(said: list[str], model_dir: Path) -> None:
    """Hold ten lines against ``w * x + b`` for x in [0, 1], of the latest checkpoint."""
    store = CheckpointStore(str(model_dir))
    values = read_values(CheckpointReader(store, store.latest() or 0)).variables
    xs = (np.array([float(line) for line in said]) - values["b"]) / values["x"]
    assert len(set(said)) == len(xs) == 10
    assert ((xs > -1e-3) & (xs < 1 + 1e-3)).all()


def test_a_migrated_program_trains_exports_and_predicts(
    migrated: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model_dir = migrated("local.py")
    export, *said = capsys.readouterr().out.splitlines()
    assert CheckpointStore(str(model_dir)).latest() == 10
    assert Path(export.removeprefix("Result dir:  "), "MLmodel").is_file()
    check_predictions(said, model_dir)


def test_migrated_programs_run_one_after_the_other_in_one_directory(migrated: Callable[..., Path]) -> None:
    stores = [CheckpointStore(str(migrated(name))) for name in ("local.py", "linear.py", "coordinated.py")]
    assert [store.latest() for store in stores] == [10, 800, 3000]


def test_a_migrated_linear_regressor_finds_its_coefficients(migrated: Callable[..., Path]) -> None:
    store = CheckpointStore(str(migrated("linear.py")))
    values = read_values(CheckpointReader(store, store.latest() or 0)).variables
    found = [
        values[f"linear/linear_model/{name}"].item()
        for name in ("feature1/weights", "feature2/weights", "bias_weights")
    ]
    assert found == pytest.approx([2, -3, 0.5], abs=0.01)


@pytest.mark.cluster
def test_a_migrated_program_trains_and_predicts_on_a_cluster(
    migrated: Callable[..., Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with (
        dask.config.set({"temporary-directory": str(tmp_path)}),
        LocalCluster(n_workers=1, threads_per_worker=5, processes=False, dashboard_address=None) as cluster,
    ):
        hosts = ("--ps-hosts", "a", "--worker-hosts", "b;c", "--chief-hosts", "d")
        model_dir = migrated("cluster.py", *hosts, "--scheduler", cluster.scheduler_address)
    finished = read_finished(str(model_dir))
    assert finished is not None
    assert finished.final_step == 500
    assert [record.global_step for record in EvaluationLog(str(model_dir)).read()] == [0, 500]
    _, *said = capsys.readouterr().out.splitlines()
    check_predictions(said, model_dir)
