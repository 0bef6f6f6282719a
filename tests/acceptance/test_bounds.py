"""The lowest and the newest version of each dependency, on each Python that psflow says it runs on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.acceptance.test_installs import MODEL_DIR, Installed, checkout, run
from tests.flows.conftest import ROOT

__all__ = ["checkout"]

pytestmark = pytest.mark.timeout(1800)
INSTALL_SECS = 1200.0
"""Three installations are resolved at a time, a minute of CPU each, at the pace of the registry."""

PRINTED = {"dask", "distributed", "fastapi", "mlflow", "numpy", "pandas", "prefect", "protobuf", "pydantic", "pyarrow"}


class InstalledWithDependencies(Installed):
    """psflow as a stranger installs it, which takes a registry of packages."""

    def __init__(self, path: Path, checkout: Path, python: Path, constraints: list[str]) -> None:
        self._python = python
        self._constraints = path / "constraints.txt"
        self._constraints.write_text("\n".join(constraints))
        super().__init__(path, [str(checkout)])

    def install(self, what: list[str]) -> None:
        """Install psflow and its dependencies, and print their versions."""
        run([self._python, "-m", "venv", self.environment], PYTHONPATH="")
        pip = [self.environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "install", "--quiet", *what], INSTALL_SECS, PIP_CONSTRAINT=str(self._constraints), PYTHONPATH="")
        lines = run([*pip, "freeze"], PYTHONPATH="").splitlines()
        versions = dict(line.split("==") for line in lines if "==" in line)
        print({name: version for name, version in versions.items() if name in PRINTED})


class Bounds:
    """What is tried with one Python: a class each, as pytest-xdist gives a class to one process."""

    python: str

    @pytest.mark.piece(number=9)
    def test_lowest(self, checkout: Path, tmp_path: Path) -> None:
        train_predict_serve(InstalledWithDependencies(tmp_path, checkout, interpreter(self.python), lowest()))

    @pytest.mark.piece(number=10)
    def test_newest(self, checkout: Path, tmp_path: Path) -> None:
        train_predict_serve(InstalledWithDependencies(tmp_path, checkout, interpreter(self.python), []))


class TestPython311(Bounds):
    python = "3.11"


class TestPython312(Bounds):
    python = "3.12"


class TestPython313(Bounds):
    python = "3.13"


def train_predict_serve(psflow: Installed) -> None:
    """Do what users do all day."""
    conf = "conf/scene.yaml"
    trained = psflow("train", conf, f"model_dir={MODEL_DIR}")
    assert trained["final_step"] == 20
    assert psflow("evaluate", "--model-dir", MODEL_DIR, "--checkpoints", "10", "--force")["num_evaluated"] == 1
    predicted = psflow("predict", "--model", trained["best"]["model_uri"], "--input", "table.csv", "--output", "out")
    assert predicted["rows"] == 200
    psflow("up")
    try:
        assert psflow.serve(conf, "serving train/scene") == 128 + signal.SIGINT
    finally:
        psflow("down")


def lowest() -> list[str]:
    """Return constraints that take each dependency at the version from which on it is allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = []
    for requirement in map(Requirement, project["dependencies"]):
        floors = [bound.version for bound in requirement.specifier if bound.operator == ">="]
        assert len(floors) == 1, f"{requirement} needs a lowest version"
        found.append(f"{requirement.name}=={floors[0]}")
    return found


def interpreter(version: str) -> Path:
    """Return a Python of a version, from PATH or from pyenv; a test is skipped where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for path in (shutil.which(f"python{version}"), *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        if path is not None and _answers(path, version):
            return Path(path)
    pytest.skip(f"Python {version} is not installed")


def _answers(path: str | Path, version: str) -> bool:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([path, "-c", program], capture_output=True, text=True)
    return done.stdout.strip() == version
