"""What the layout of the repository promises, beyond what types and lint can say."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "ps_runtime", "benchmarks")

MAX_FILE_LINES = 400


def sources() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def test_a_file_has_one_idea():
    assert [path for path, text in sources() if len(text.splitlines()) > MAX_FILE_LINES] == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "strangers"),
    [
        ("psflow.flows.cli", ["prefect", "mlflow", "dask", "distributed", "numpy", "yaml", "rich", "sklearn"]),
        ("psflow", ["prefect", "mlflow", "dask", "distributed", "pydantic", "yaml", "pandas", "numpy"]),
    ],
)
def test_an_import_stays_light(module, strangers):
    code = f"import sys, {module}; print(*sorted(set({strangers}) & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    assert done.stdout.split() == []
