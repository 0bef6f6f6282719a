"""A checkpoint takes no push of an earlier incarnation: those of a new attempt are later than all that it knows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.estimator.estimator import Estimator
from tests.ps_runtime.estimator.regression import shuffled


def trained_for_the_fifth_time(estimator: Estimator) -> str:
    """Train 10 steps in an attempt that is not the first; return the model_dir."""
    estimator.train(shuffled, max_steps=5)
    file = JobFile(estimator.model_dir)
    file.claim()
    file.update(attempts=4)
    file.release()
    estimator.train(shuffled, max_steps=10)
    return estimator.model_dir


def last_incarnation(model_dir: str) -> int:
    store = CheckpointStore(model_dir)
    latest = store.latest()
    assert latest is not None
    return max(incarnation for _, incarnation, _ in store.manifest(latest).job["sequences"])


@pytest.fixture
def old(make: Any) -> str:
    return trained_for_the_fifth_time(make())


def test_training_goes_on_where_job_json_is_lost_and_says_so(
    make: Any, old: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = last_incarnation(old)
    Path(old, "job.json").unlink()
    make().train(shuffled, max_steps=15)
    [said] = [text for text in caplog.messages if "job.json" in text]
    assert said.startswith(
        f"{old} has checkpoints, the latest of step 10, but no job.json: a new job continues from there"
    )
    assert CheckpointStore(old).latest() == 15
    assert last_incarnation(old) == before + 1
    caplog.clear()
    make().train(shuffled, max_steps=20)
    assert not [text for text in caplog.messages if "job.json" in text]
    assert CheckpointStore(old).latest() == 20


def test_training_goes_on_with_checkpoints_of_another_model_dir(make: Any, old: str) -> None:
    other = make("other")
    shutil.copytree(Path(old, "checkpoints"), Path(other.model_dir, "checkpoints"))
    other.train(shuffled, max_steps=15)
    assert CheckpointStore(other.model_dir).latest() == 15
    assert last_incarnation(other.model_dir) == last_incarnation(old) + 1
