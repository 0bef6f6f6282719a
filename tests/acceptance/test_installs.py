"""psflow as it is installed from a wheel, an sdist and a checkout, beside files named as some of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import wait_for
from tests.flows.conftest import FILES_OF_A_USER, ROOT

TIMEOUT_SECS = 300

pytestmark = [pytest.mark.piece(number=1), pytest.mark.timeout(1200)]

MODEL_DIR = "runs/scene"
TABLE = "x1,x2,y\n" + "\n".join(f"{i % 7},{i % 5},{int(i % 7 > i % 5)}" for i in range(200)) + "\n"
CONF = """
experiment: scene
model: {name: my_model:points}
input:
  train: {format: csv, path: table.csv, label: y, batch_size: 20, groups: {features: numeric}}
  eval: {format: csv, path: table.csv, label: y}
train: {max_steps: 20, save_checkpoints_steps: 10}
pipeline: {predict: {input: table.csv}}
"""
MODEL = """
from helpers import scaled
from psflow import Adam, EstimatorSpec, ModeKeys, get_variable, metrics


def points(features, labels, mode):
    w = get_variable("w", (2,))
    y = scaled(features["features"]) @ w
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": y})
    train_op = Adam(learning_rate=0.01).apply_gradients({"w": scaled(features["features"]).T @ (y - labels) / len(y)})
    loss = ((y - labels) ** 2).mean()
    return EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops={"mse": metrics.mean((y - labels) ** 2)})
"""
HELPERS = "def scaled(x):\n    return x / 7\n"


class Installed:
    """A directory of a user's, and a ``psflow`` that was installed into an environment of its own."""

    def __init__(self, path: Path, what: list[str]) -> None:
        self.has_benchmarks = what[0] == "--editable"
        self.path = path / "project"
        self.environment = path / "venv"
        self.install(what)
        for name in (*FILES_OF_A_USER, "conf/__init__.py"):
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(f"raise SystemExit('{name} of the user was imported')")
        for name, text in {
            "table.csv": TABLE,
            "conf/scene.yaml": CONF,
            "my_model.py": MODEL,
            "helpers.py": HELPERS,
        }.items():
            (self.path / name).write_text(text)

    def install(self, what: list[str]) -> None:
        """Install psflow alone; its dependencies are those that are installed here."""
        run([sys.executable, "-m", "venv", "--without-pip", self.environment])
        lib = self.environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (lib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", self.environment / "bin" / "python"]
        run([*pip, "install", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check", *what])

    def __call__(self, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        """Run ``psflow`` in the project's directory, and return its answer."""
        done = subprocess.run(
            [self.program, *arguments, "--json"],
            cwd=self.path,
            env=self._variables(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECS,
        )
        assert done.returncode == exit_code, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def serve(self, conf: str, ready: str) -> int:
        """Serve until `ready` is in the log, and end that with Ctrl-C; return the exit code."""
        log = self.path / "serve.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [self.program, "serve", conf], cwd=self.path, env=self._variables(), stdout=stream, stderr=stream
            )
        try:
            wait_for(lambda: ready in log.read_text(), TIMEOUT_SECS, "psflow serve")
        finally:
            process.send_signal(signal.SIGINT)
            exit_code = process.wait(TIMEOUT_SECS)
        return exit_code

    @property
    def program(self) -> Path:
        return self.environment / "bin" / "psflow"

    def _variables(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return inherited | {"PREFECT_HOME": str(self.path / "prefect")}


def run(command: list[Any], timeout_secs: float = TIMEOUT_SECS, **variables: str) -> str:
    environment = os.environ | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_secs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone, links and all, with what is not committed yet: a build leaves nothing in the tree under test."""
    path = tmp_path_factory.mktemp("clone") / "psflow"
    names = run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]).splitlines()
    for name in filter(lambda name: os.path.lexists(ROOT / name), names):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, path / name, follow_symlinks=False)
    return path


WHEEL = pytest.param("wheel", marks=pytest.mark.ci)


@pytest.fixture(scope="module", params=[WHEEL, "sdist", "editable"])
def psflow(request: pytest.FixtureRequest, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    path = tmp_path_factory.mktemp(request.param)
    match request.param:
        case "wheel":
            what = [str(checkout)]
        case "editable":
            what = ["--editable", str(checkout)]
        case "sdist":
            program = "import setuptools.build_meta as b, sys; b.build_sdist(sys.argv[1])"
            subprocess.run([sys.executable, "-c", program, path], cwd=checkout, check=True, capture_output=True)
            what = [str(next(path.glob("psflow-*.tar.gz")))]
    return Installed(path, what)


@pytest.fixture(scope="module")
def trained(psflow: Installed) -> dict[str, Any]:
    """What a training answers, whose Dask workers are beside these files, too."""
    return psflow("train", "conf/scene.yaml", f"model_dir={MODEL_DIR}")


def test_an_exported_model_loads_beside_files_of_the_same_names(psflow: Installed, trained: dict[str, Any]) -> None:
    assert trained["final_step"] == 20
    assert trained["roles"].keys() >= {"ps-0", "chief-0", "worker-0", "evaluator-0"}
    program = (
        "import mlflow.pyfunc, pandas as pd;"
        "rows = pd.read_csv('table.csv').astype('float32');"
        f"print(mlflow.pyfunc.load_model({trained['best']['export_path']!r}).predict(rows)['y'].shape)"
    )
    python = psflow.environment / "bin" / "python"
    done = subprocess.run([python, "-c", program], cwd=psflow.path, capture_output=True, text=True)
    assert done.stdout == "(200,)\n", done.stderr


@pytest.mark.parametrize("psflow", [WHEEL, "editable"], indirect=True)
def test_every_command_works_beside_files_of_the_same_names(psflow: Installed, trained: dict[str, Any]) -> None:
    psflow("up")  # here, so that no command below needs a Prefect server of its own: the training had one
    try:
        use_all(psflow, trained)
    finally:
        psflow("down")
    if psflow.has_benchmarks:
        psflow("bench", "mlp", "--quick")
    else:
        refused = psflow("bench", "mlp", "--quick", exit_code=2)
        assert "the benchmarks are not part of the installed package" in refused["error"]["message"]


def use_all(psflow: Installed, trained: dict[str, Any]) -> None:
    """Run the commands that need a model."""
    conf, model_dir = "conf/scene.yaml", MODEL_DIR
    psflow("plan", conf)
    psflow("config", conf)
    psflow("evaluate", "--model-dir", model_dir, "--checkpoints", "all", "--force")
    psflow("export", "--model-dir", model_dir, "--checkpoint", "10")
    predicted = psflow("predict", "--model", trained["best"]["model_uri"], "--input", "table.csv", "--output", "out")
    assert predicted["rows"] == 200
    other = psflow("pipeline", conf, "model_dir=runs/pipeline", "experiment=p")
    assert other["predict"]["rows"] == 200
    psflow("diff", trained["run_id"], other["train"]["run_id"])
    psflow("doctor")
    psflow("status")
    assert psflow.serve(conf, "serving train/scene") == 128 + signal.SIGINT
