"""A start is compared with its model_dir; the jobs were trained in this process."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import write_config
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.flows.planning.restart import log_changes, plan_start
from psflow.flows.planning.training_plan import plan_attempt
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.files import load
from psflow.ps_runtime.errors import CheckpointError, ModelDirError, UsageError
from tests.flows.conftest import TABLE_CONF


@pytest.fixture(autouse=True)
def _directory(table: Path) -> None:
    Path("t.yaml").write_text(TABLE_CONF.replace("max_steps: 2", "max_steps: 4, save_checkpoints_steps: 2"))


def parsed(*overrides: str) -> TrainParameters:
    return parse_parameters(load(["t.yaml"], overrides).values, {})


def trained(*overrides: str) -> TrainParameters:
    """Train as a flow would, but in this process."""
    parameters = plan_start(parsed(*overrides)).parameters
    training = build_training(parameters)
    training.estimator.train(training.train_spec.input_fn, max_steps=4)
    write_config(parameters.model_dir, parameters)
    return parameters


def test_a_new_job_has_a_seed_of_its_own_and_keeps_it() -> None:
    parameters = trained()
    start = plan_start(parsed())
    assert (start.parameters, start.changes, start.fork) == (parameters, (), None)
    assert parameters.seed is not None


def test_more_steps_elsewhere_are_reported_and_allowed(caplog: pytest.LogCaptureFixture) -> None:
    trained()
    start = plan_start(parsed("train.max_steps=9", "cluster.workers=3"), load([], ["train.max_steps=9"]))
    with caplog.at_level(logging.INFO):
        log_changes(start, logging.getLogger("t"))
    assert caplog.messages == [
        "changed since the last start: train.max_steps: 4 -> 9 (command line)",
        "changed since the last start: cluster.workers: 1 -> 3",
    ]


def test_another_optimizer_and_seed_are_refused_unless_allowed() -> None:
    trained("seed=3")
    other = ("seed=4", "model.params.optimizer={name: Adam}", "train.max_steps=9")
    words = (
        r"(?s)^runs/t was trained with other values of keys .* \(--fork DIR, resume\.fork\).*--allow-changes.*:\n"
        r"  model\.params\.optimizer\.name: Adagrad -> Adam\n.*  and \d+ more$"
    )
    with pytest.raises(UsageError, match=words):
        plan_start(parsed(*other))
    start = plan_start(parsed(*other, "resume.allow_changes=true"))
    assert len(start.changes) >= 3
    assert not start.parameters.resume.allow_changes, "the next start is asked again"


def test_another_training_is_refused_in_a_few_lines() -> None:
    trained("seed=3")
    other = (
        "seed=4",
        "pipeline_depth=1",
        "train.each_worker_reads_all=true",
        "warm_start.checkpoint=x",
        "model.params.optimizer={name: Adam}",
    )
    with pytest.raises(UsageError) as caught:
        plan_start(parsed(*other))
    lines = str(caught.value).splitlines()
    assert len(lines) == 6, lines
    assert re.fullmatch(r"  and \d+ more", lines[-1])


def test_before_the_first_checkpoint_everything_may_change() -> None:
    parameters = plan_start(parsed()).parameters
    Path(parameters.model_dir).mkdir(parents=True)
    write_config(parameters.model_dir, parameters)
    assert plan_start(parsed("seed=4")).changes == ()


def test_a_lost_configuration_beside_checkpoints_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    trained()
    assert plan_start(parsed()).lost_config is None
    Path("runs/t/config.yaml").unlink()
    start = plan_start(parsed("seed=4"))
    assert start.lost_config == (
        "runs/t has checkpoints, but no config.yaml: it was removed, or a Python program trained there; changed keys "
        "cannot be found; restore the file to compare them, as a training writes a new one"
    )
    with caplog.at_level(logging.WARNING):
        log_changes(start, logging.getLogger("t"))
    assert caplog.messages == [start.lost_config]


def test_a_fork_goes_on_from_the_latest_checkpoint_as_a_job_of_its_own() -> None:
    parent = trained("seed=3")
    parent_job = JobFile("runs/t").read()
    assert parent_job is not None
    start = plan_start(parsed("seed=4", "resume.fork=runs/b", "train.max_steps=9"))
    assert [change.key for change in start.changes] == ["seed", "model_dir", "train.max_steps"]
    assert start.parameters.model_dir == f"{Path.cwd()}/runs/b"

    lives = CheckpointStore("runs/t").manifest(4).job["sequences"]
    for attempts in (1, 2):
        with plan_attempt(start.parameters, start.fork) as attempt:
            assert attempt.number == attempts
            assert attempt.job().attempt == attempts
            assert attempt.job().last_incarnation_before == max(incarnation for _, incarnation, _ in lives)
            write_config(attempt.model_dir, start.parameters)
    record = JobFile("runs/b").read()
    assert record is not None
    assert record.job_id != parent_job.job_id
    assert record.facts["forked_from"] == {
        "job_id": parent_job.job_id,
        "run_id": None,
        "model_dir": parent.model_dir,
        "step": 4,
    }
    assert CheckpointStore("runs/b").steps() == [4]

    training = build_training(start.parameters)
    training.estimator.train(training.train_spec.input_fn, max_steps=9)
    assert training.estimator.latest_checkpoint().endswith("step_00000009")
    assert CheckpointStore("runs/t").latest() == 4
    again = plan_start(parsed("seed=4", "resume.fork=runs/b", "train.max_steps=9"))
    assert again.changes == (), "it is compared with itself by now"
    with pytest.raises(UsageError, match="seed: 4 -> 5"):
        plan_start(parsed("seed=5", "resume.fork=runs/b"))


def test_a_fork_that_cannot_be() -> None:
    with pytest.raises(ModelDirError, match=r"/runs/t has no checkpoint to fork from; train it first"):
        plan_start(parsed("resume.fork=runs/b"))
    trained()
    with pytest.raises(ModelDirError, match=r"--fork names the model_dir itself, .*; choose another directory"):
        plan_start(parsed("resume.fork=runs/../runs/t"))
    trained("model_dir=runs/c")
    with pytest.raises(ModelDirError, match=r"runs/c holds a job that is not a fork of .*/runs/t; choose another"):
        plan_start(parsed("resume.fork=runs/c"))
    start = plan_start(parsed("resume.fork=runs/b", "model.params.hidden_units=[9]"))
    with pytest.raises(ModelDirError, match=r"/runs/t holds checkpoints of another model"):
        plan_attempt(start.parameters, start.fork)
    assert not Path("runs/b").exists()


def test_a_copy_that_was_cut_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trained()
    start = plan_start(parsed("resume.fork=runs/b"))

    def cut_off(*_: object) -> None:
        raise CheckpointError("b", "power failed")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "commit", cut_off)
        with pytest.raises(CheckpointError, match="power failed"):
            plan_attempt(start.parameters, start.fork).__enter__()
    again = plan_start(parsed("resume.fork=runs/b"))
    with plan_attempt(again.parameters, again.fork):
        assert CheckpointStore("runs/b").steps() == [4]
