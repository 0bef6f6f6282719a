"""The tutorial works, as far as that can be seen without a cluster; ``make acceptance`` does all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from psflow.flows.parameters.train import parse_parameters
from psflow.flows.serve import configured
from psflow.ps_runtime.config.files import load
from tests.tutorial import commands, write_files

PYTHON_FILES = ["make_houses.py", "my_model.py", "try_it.py", "canned.py"]


@pytest.mark.process
def test_its_programs_run_and_its_configurations_are_read(tmp_path: Path) -> None:
    assert write_files(tmp_path) == [*PYTHON_FILES, "houses.yaml", "nightly.yaml"]
    printed: dict[str, list[str]] = {}
    for program, *arguments in commands():
        if program == "python":
            done = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            printed[arguments[0]] = done.stdout.splitlines()
    w = [float(number) for number in printed["try_it.py"][-1].strip("[]").split()]
    assert [abs(have - wanted) < 3 for have, wanted in zip(w, (210, 12, -9), strict=True)] == [True] * 3, printed
    assert float(printed["canned.py"][-2]) < 0.05, printed
    assert re.fullmatch(r"\[\d\.\d+\]", printed["canned.py"][-1]), printed
    parse_parameters(load([tmp_path / "houses.yaml"]).values, {})
    served = configured([str(tmp_path / "nightly.yaml")])
    assert [deployment.flow_name for deployment in served if deployment.schedules] == ["train"]


def test_all_its_commands_are_of_psflow_or_its_own() -> None:
    assert {words[0] for words in commands()} == {"python", "psflow"}
    named = [words[1] for words in commands() if words[0] == "psflow"]
    assert named == ["plan", "up", "train", "train", "evaluate", "predict", "serve", "down"]
