from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning import training_plan
from psflow.flows.planning.training_plan import await_model_dir
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.errors import ModelDirError

DIGITS = Path(__file__).parents[3] / "conf" / "digits.yaml"


def parsed(tmp_path: Path, *overrides: str) -> TrainParameters:
    return parse_parameters(load([DIGITS], [f"model_dir={tmp_path}/m", *overrides]).values, {})


def test_a_free_model_dir_is_not_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    await_model_dir(parsed(tmp_path, "resume.when_running=wait"), said.append)
    assert said == []
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("override", ["resume.when_running=fail", "cluster.admission_timeout_secs=0.001"])
def test_a_job_that_runs_is_refused(tmp_path: Path, override: str) -> None:
    JobFile(f"{tmp_path}/m").claim()
    with pytest.raises(
        ModelDirError, match=r"/m is in use by process .*; that is this process: end the session or training"
    ):
        await_model_dir(parsed(tmp_path, override), lambda _: None)


def test_a_fork_waits_for_its_own_directory_only(tmp_path: Path) -> None:
    JobFile(f"{tmp_path}/m").claim()
    await_model_dir(parsed(tmp_path, f"resume.fork={tmp_path}/b"), lambda _: None)


def test_the_turn_comes_when_the_other_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = JobFile(f"{tmp_path}/m")
    other.claim()
    naps: list[Any] = []

    def sleep(secs: float) -> None:
        naps.append(secs)
        if len(naps) == 2:
            other.release()

    monkeypatch.setattr(training_plan.time, "sleep", sleep)
    said: list[str] = []
    await_model_dir(parsed(tmp_path, "resume.when_running=wait", "cluster.admission_timeout_secs=3600.0"), said.append)
    assert len(naps) == 2
    assert len(said) == 1
    assert said[0].startswith(f"waiting up to 3600 s: model_dir {tmp_path}/m is in use by process ")
