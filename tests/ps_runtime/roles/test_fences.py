"""A role that went on too late, as its fence says, leaves nothing that counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from psflow.ps_runtime.checkpoint import owner_mark
from psflow.ps_runtime.checkpoint.records import EvaluationLog, read_finished, write_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import LostDirectoryError, StoppedError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.model.export.exporters import LatestExporter
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.roles import evaluator
from psflow.ps_runtime.roles.chief import run_chief
from psflow.ps_runtime.roles.evaluator import run_evaluator
from psflow.ps_runtime.specs.roles import Role
from psflow.ps_runtime.specs.run_config import RunConfig
from tests.ps_runtime.estimator.regression import records, regression, shuffled
from tests.ps_runtime.roles.test_evaluator import nobody

FIRST = {"checkpoints/step_00000000/manifest.json", "checkpoints/step_00000000/shard_00000_of_00001.safetensors"}


class Closing:
    """A fence that lets through so often."""

    def __init__(self, num_open: int) -> None:
        self.num_open = num_open

    def __call__(self) -> None:
        self.num_open -= 1
        if self.num_open < 0:
            raise StoppedError("this role", "it was lost meanwhile")


class NotingExporter(LatestExporter):
    """Leaves a file for each export."""

    def export(self, model_dir: str, *given: Any, **options: Any) -> None:
        """Write it."""
        tempfile.mkstemp(prefix="exported", dir=model_dir)


def files_of(model_dir: str) -> set[str]:
    """Return what a job has left, but what its owner has written."""
    paths = (Path(folder, name) for folder, _, names in os.walk(model_dir) for name in names)
    return {str(path.relative_to(model_dir)) for path in paths} - {"job.json", ".job.lock"}


@pytest.mark.parametrize(
    ("role", "num_open", "left"),
    [
        (Role.PS, 0, set()),
        (Role.PS, 1, set()),  # it asks before it makes a directory, too
        (Role.PS, 2, FIRST | {"finished.json"}),
        (Role.CHIEF, 0, {"checkpoints/step_00000000/shard_00000_of_00001.safetensors"}),
        (Role.CHIEF, 1, FIRST),  # it would mark the end next
        (Role.CHIEF, 2, FIRST | {"finished.json", "checkpoints/step_00000003/shard_00000_of_00001.safetensors"}),
    ],
)
def test_a_chief_or_a_ps_writes_up_to_its_fence(
    roles: Any, tmp_path: Path, role: Role, num_open: int, left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def context(job: Any, of: Role, *given: Any, make: Callable[..., Any] = roles.context, **options: Any) -> Any:
        made = make(job, of, *given, **options)
        return replace(made, fence=Closing(num_open)) if of is role else made

    monkeypatch.setattr(roles, "context", context)
    estimator = Estimator(regression, str(tmp_path), RunConfig(tf_random_seed=1, save_checkpoints_steps=50))
    with Attempt(estimator, TrainSpec(shuffled, 3), None) as attempt:
        job = attempt.job()
        _, connect_functions = roles.start_ps(job)
        with pytest.raises(Exception, match="this role was stopped: it was lost meanwhile"):
            run_chief(job, context(job, Role.CHIEF), connect_functions)
        assert files_of(estimator.model_dir) == left
        assert (read_finished(estimator.model_dir) is not None) == ("finished.json" in left)
    roles.stop.set()


class Writer:
    """Writes a directory as a model."""

    def write(self, directory: str, bundle: Any) -> None:
        """Write it."""
        Path(directory).mkdir()


@pytest.mark.parametrize(
    ("exporter", "num_open", "exports"),
    [
        (NotingExporter("latest"), 0, []),
        (NotingExporter("latest"), 2, ["exported"]),
        (LatestExporter("latest"), 2, []),  # it went on while it wrote
        (LatestExporter("latest"), 3, ["1"]),
    ],
)
def test_an_evaluator_exports_and_records_up_to_its_fence(
    roles: Any, tmp_path: Path, exporter: LatestExporter, num_open: int, exports: list[str]
) -> None:
    estimator = Estimator(regression, str(tmp_path), RunConfig(tf_random_seed=1, save_checkpoints_steps=5))
    estimator.train(shuffled, max_steps=5)
    eval_spec = EvalSpec(records, None, exporters=exporter, start_delay_secs=0, throttle_secs=0)
    with Attempt(estimator, TrainSpec(shuffled, 20), eval_spec) as attempt:
        job = replace(attempt.job(), writer=Writer())
        write_finished(estimator.model_dir, 5, "all steps are done")
        context = replace(roles.context(job, Role.EVALUATOR), fence=Closing(num_open))
        with pytest.raises(StoppedError, match="it was lost meanwhile"):
            run_evaluator(job, context, [nobody])
    found = [*tmp_path.glob("exported*"), *tmp_path.glob("export/latest/[!.]*")]
    assert [path.name[: len("exported")] for path in found] == exports
    assert EvaluationLog(estimator.model_dir).read() == []
    assert CheckpointStore(estimator.model_dir).files.size("evaluations.jsonl") in (None, 0)


def test_an_evaluator_that_waits_in_a_model_dir_that_is_gone_ends(
    roles: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((evaluator, "LOOK_SECS"), (evaluator, "SLICE_SECS"), (owner_mark, "CONFIRM_SECS")):
        monkeypatch.setattr(module, name, 0.001)
    estimator = Estimator(regression, str(tmp_path / "run"), RunConfig(tf_random_seed=1))
    with Attempt(estimator, TrainSpec(shuffled, 3), EvalSpec(records, None, start_delay_secs=0)) as attempt:
        job = attempt.job()
        context = roles.context(job, Role.EVALUATOR)
        context.fence = owner_mark.job_mark(job.model_dir, job.owner, "evaluator-0", context.check).confirm
        os.rename(tmp_path / "run", tmp_path / "moved")
        with pytest.raises(LostDirectoryError, match=r"evaluator-0 on .* finds no job\.json"):
            run_evaluator(job, context, [nobody])
