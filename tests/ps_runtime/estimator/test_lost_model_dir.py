"""A model_dir that disappears during training: the job ends with a message, and does not create it again."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from psflow.ps_runtime.checkpoint import owner_mark
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.errors import LostDirectoryError
from psflow.ps_runtime.estimator import attempt as attempts
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export.exporters import LatestExporter
from psflow.ps_runtime.model.hooks.base import CheckpointSaverListener, SessionRunHook
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.limits import HANG_SECS
from tests.ps_runtime.estimator.regression import records, regression, shuffled

Lose = Callable[[Path], object]


def move(model_dir: Path) -> None:
    model_dir.rename(model_dir.with_name("moved"))


def remove(model_dir: Path) -> None:
    """Remove it at once, whatever is being written."""
    move(model_dir)
    shutil.rmtree(model_dir.with_name("moved"))


def replace_by_an_empty_one(model_dir: Path) -> None:
    move(model_dir)
    model_dir.mkdir()


def replace_by_another_job(model_dir: Path) -> None:
    replace_by_an_empty_one(model_dir)
    JobFile(str(model_dir)).claim()


LOSSES = [remove, move, replace_by_an_empty_one, replace_by_another_job]
OF_ANOTHER_JOB: dict[Lose, set[str]] = {lose: set() for lose in LOSSES} | {
    replace_by_another_job: {".job.lock", "job.json"}
}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_mark, "CONFIRM_SECS", 0.0)


class Losing(CheckpointSaverListener):
    """Loses the model_dir right after a checkpoint, while nothing is being written."""

    def __init__(self, lose: Lose, model_dir: Path) -> None:
        self.lose, self.model_dir = lose, model_dir

    def after_save(self, session: Any, global_step: int) -> None:
        """Lose it."""
        if global_step == 5:
            self.lose(self.model_dir)


class Counter(SessionRunHook):
    """Counts the steps."""

    num_steps = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Count."""
        self.num_steps += 1


def left(model_dir: Path) -> set[str]:
    return {str(path.relative_to(model_dir)) for path in model_dir.rglob("*")}


@pytest.fixture
def lost(tmp_path: Path) -> Callable[..., str]:
    """Return what trains until the model_dir is lost after step 5, and returns what the error says."""

    def train(lose: Lose, model_dir: str = str(tmp_path / "run"), **when: Any) -> str:
        config = RunConfig(tf_random_seed=1, save_checkpoints_steps=5)
        counter, losing = Counter(), Losing(lose, Path(model_dir))
        with pytest.raises(LostDirectoryError) as told:
            Estimator(regression, model_dir, config).train(
                shuffled, max_steps=60, hooks=[counter], saving_listeners=[losing]
            )
        assert counter.num_steps <= 15  # the cut of step 10 finds it, and that of step 15 waits for that
        return str(told.value)

    return train


@pytest.mark.parametrize("lose", LOSSES)
def test_a_training_ends_within_one_checkpoint_and_writes_nothing_there(
    tmp_path: Path, lost: Callable[..., str], lose: Lose
) -> None:
    model_dir = tmp_path / "run"
    assert lost(lose).startswith(f"{model_dir}: ")
    assert not model_dir.exists() or left(model_dir) <= OF_ANOTHER_JOB[lose]


def test_a_training_without_checkpoints_ends_with_that_too(tmp_path: Path) -> None:
    model_dir = tmp_path / "run"

    class Lose(SessionRunHook):
        def begin(self) -> None:
            remove(model_dir)

    config = RunConfig(save_checkpoints_secs=None)
    with pytest.raises(LostDirectoryError, match=f"^{model_dir}: "):
        Estimator(regression, str(model_dir), config).train(shuffled, max_steps=7, hooks=[Lose()])
    assert not model_dir.exists()


def test_a_training_says_what_it_finds_and_where(tmp_path: Path, lost: Callable[..., str]) -> None:
    me = f"process {os.getpid()} on {os.uname().nodename}"
    assert lost(replace_by_another_job) == (
        f"{tmp_path}/run: it was replaced while {me} works there: the training on {os.uname().nodename} finds the "
        f"job.json of {me}, and writes nothing more; put the first one back, or choose another model_dir, then run the "
        "same command again"
    )


def test_a_store_behind_a_url_has_its_mark_too(lost: Callable[..., str]) -> None:
    url = f"memory://{uuid.uuid4().hex}/run"
    store, path = fsspec.filesystem("memory"), url.removeprefix("memory:/")
    told = lost(lambda _: store.rm(path, recursive=True), url)
    assert told.startswith(f"{url}: it was removed or moved")
    assert "finds no job.json, and writes nothing more" in told
    assert store.find(path) == []


def test_the_owner_finds_it_without_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "RENEW_SECS", 0.001)
    model_dir = tmp_path / "run"
    attempt = Attempt(Estimator(regression, str(model_dir)), TrainSpec(shuffled, 3), None)
    with attempt:
        remove(model_dir)
        attempt._renewer.join(HANG_SECS)
        with pytest.raises(LostDirectoryError, match="run: "):
            attempt.check()
    with pytest.raises(LostDirectoryError, match=r"run: its job\.json is gone: .*; move it back, then run"):
        attempt.__enter__()  # as a flow does that is tried again
    assert not model_dir.exists()


class MovingWriter:
    """Moves the model_dir away while it writes an export, and goes on as MLflow does, which makes what it misses."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir

    def write(self, directory: str, bundle: Any) -> None:
        """Write it."""
        move(self.model_dir)
        os.makedirs(directory)
        Path(directory, "MLmodel").write_text("")


def test_an_export_under_way_leaves_nothing(tmp_path: Path) -> None:
    model_dir = tmp_path / "run"
    estimator = Estimator(regression, str(model_dir), RunConfig(tf_random_seed=1, save_checkpoints_steps=5))
    spec = EvalSpec(records, None, exporters=LatestExporter("latest"), start_delay_secs=0, throttle_secs=0)
    attempt = Attempt(estimator, TrainSpec(shuffled, 20_000), spec)
    with pytest.raises(LostDirectoryError), attempt:
        attempt.run_here(lambda event: None, MovingWriter(model_dir))
    assert not model_dir.exists()
    assert not (tmp_path / "moved" / "export" / "latest" / "1").exists()
