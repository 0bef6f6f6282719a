"""A start beside what its model_dir holds; the jobs were trained in this process."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from psflow.flows.parameters.configuration import write_config
from psflow.flows.parameters.train import TrainParameters, parse_parameters
from psflow.flows.planning.building import build_training
from psflow.flows.planning.planned import plan_attempt
from psflow.flows.planning.restart import begin, tell
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
    parameters = begin(parsed(*overrides)).parameters
    training = build_training(parameters)
    training.estimator.train(training.train_spec.input_fn, max_steps=4)
    write_config(parameters.model_dir, parameters)
    return parameters


def test_a_new_job_has_a_seed_of_its_own_and_keeps_it() -> None:
    parameters = trained()
    beginning = begin(parsed())
    assert (beginning.parameters, beginning.changes, beginning.fork) == (parameters, (), None)
    assert parameters.seed is not None


def test_more_steps_elsewhere_are_told_and_allowed(caplog: pytest.LogCaptureFixture) -> None:
    trained()
    beginning = begin(parsed("train.max_steps=9", "cluster.workers=3"), load([], ["train.max_steps=9"]))
    with caplog.at_level(logging.INFO):
        tell(beginning, logging.getLogger("t"))
    assert caplog.messages == [
        "changed since the last start: train.max_steps: 4 -> 9 (command line)",
        "changed since the last start: cluster.workers: 1 -> 3",
    ]


def test_another_optimizer_and_seed_are_refused_unless_allowed() -> None:
    trained("seed=3")
    other = ("seed=4", "model.params.optimizer={name: Adam}", "train.max_steps=9")
    words = (
        r"(?s)^runs/t was trained with other values of keys .* \(--fork DIR, resume\.fork\).*--allow-changes.*:\n"
        r"  model\.params\.optimizer\.name: Adagrad -> Adam\n.*  seed: 3 -> 4\n"
    )
    with pytest.raises(UsageError, match=words):
        begin(parsed(*other))
    beginning = begin(parsed(*other, "resume.allow_changes=true"))
    assert len(beginning.changes) >= 3
    assert not beginning.parameters.resume.allow_changes, "the next start is asked again"


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
        begin(parsed(*other))
    lines = str(caught.value).splitlines()
    assert len(lines) == 6, lines
    assert re.fullmatch(r"  and \d+ more", lines[-1])


def test_before_the_first_checkpoint_everything_may_change() -> None:
    parameters = begin(parsed()).parameters
    Path(parameters.model_dir).mkdir(parents=True)
    write_config(parameters.model_dir, parameters)
    assert begin(parsed("seed=4")).changes == ()


def test_a_lost_configuration_beside_checkpoints_is_told(caplog: pytest.LogCaptureFixture) -> None:
    trained()
    assert begin(parsed()).lost_config is None
    Path("runs/t/config.yaml").unlink()
    beginning = begin(parsed("seed=4"))
    assert beginning.lost_config == (
        "runs/t has checkpoints, but no config.yaml, as it was removed, or a Python program trained there: which "
        "keys have changed is not known; put the file back to have them compared, as a training writes a new one"
    )
    with caplog.at_level(logging.WARNING):
        tell(beginning, logging.getLogger("t"))
    assert caplog.messages == [beginning.lost_config]


def test_a_fork_goes_on_from_the_latest_checkpoint_as_a_job_of_its_own() -> None:
    parent = trained("seed=3")
    parent_job = JobFile("runs/t").read()
    assert parent_job is not None
    beginning = begin(parsed("seed=4", "resume.fork=runs/b", "train.max_steps=9"))
    assert [change.key for change in beginning.changes] == ["seed", "model_dir", "train.max_steps"]
    assert beginning.parameters.model_dir == f"{Path.cwd()}/runs/b"

    lives = CheckpointStore("runs/t").manifest(4).job["sequences"]
    for attempts in (1, 2):
        with plan_attempt(beginning.parameters, beginning.fork) as attempt:
            assert attempt.number == attempts
            assert attempt.job().attempt == attempts
            assert attempt.job().last_incarnation_before == max(incarnation for _, incarnation, _ in lives)
            write_config(attempt.model_dir, beginning.parameters)
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

    training = build_training(beginning.parameters)
    training.estimator.train(training.train_spec.input_fn, max_steps=9)
    assert training.estimator.latest_checkpoint().endswith("step_00000009")
    assert CheckpointStore("runs/t").latest() == 4
    again = begin(parsed("seed=4", "resume.fork=runs/b", "train.max_steps=9"))
    assert again.changes == (), "it is compared with itself by now"
    with pytest.raises(UsageError, match="seed: 4 -> 5"):
        begin(parsed("seed=5", "resume.fork=runs/b"))


def test_a_fork_that_cannot_be() -> None:
    with pytest.raises(ModelDirError, match=r"/runs/t has no checkpoint to fork from; train it first"):
        begin(parsed("resume.fork=runs/b"))
    trained()
    with pytest.raises(ModelDirError, match=r"--fork names the model_dir itself, .*; choose another directory"):
        begin(parsed("resume.fork=runs/../runs/t"))
    trained("model_dir=runs/c")
    with pytest.raises(ModelDirError, match=r"runs/c holds a job that is not a fork of .*/runs/t; choose another"):
        begin(parsed("resume.fork=runs/c"))
    beginning = begin(parsed("resume.fork=runs/b", "model.params.hidden_units=[9]"))
    with pytest.raises(ModelDirError, match=r"/runs/t holds checkpoints of another model"):
        plan_attempt(beginning.parameters, beginning.fork)
    assert not Path("runs/b").exists()


def test_a_copy_that_was_cut_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    trained()
    beginning = begin(parsed("resume.fork=runs/b"))

    def cut_off(*_: object) -> None:
        raise CheckpointError("b", "power failed")

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "commit", cut_off)
        with pytest.raises(CheckpointError, match="power failed"):
            plan_attempt(beginning.parameters, beginning.fork).__enter__()
    again = begin(parsed("resume.fork=runs/b"))
    with plan_attempt(again.parameters, again.fork):
        assert CheckpointStore("runs/b").steps() == [4]
