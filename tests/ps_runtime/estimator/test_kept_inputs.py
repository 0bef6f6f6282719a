"""The scans of a job's inputs in its model_dir: written once, read by roles, by later attempts, and by replays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from psflow import EvalSpec, LinearClassifier, RunConfig, TrainSpec
from psflow.ps_runtime.data import record_input
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError, ModelDirError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.estimator import Estimator
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.estimator.planning import plan_evaluations
from psflow.ps_runtime.model.kept_inputs import KeptInputs

ROWS = "".join(f"{'ab'[i % 2]},{i},{i % 2}\n" for i in range(40))


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is scanned from now on."""
    found: list[str] = []
    scan = record_input.scan_input

    def counted(*given: Any, **options: Any) -> Any:
        found.append(given[3])
        return scan(*given, **options)

    monkeypatch.setattr(record_input, "scan_input", counted)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("train", "eval", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text("word,number,label\n" + ROWS)
    return tmp_path


def estimator_in(folder: Path) -> Estimator:
    config = RunConfig(tf_random_seed=1, save_checkpoints_steps=5)
    return LinearClassifier(n_classes=2, model_dir=str(folder / "model"), config=config)


def specs(folder: Path, max_steps: int) -> tuple[TrainSpec, list[EvalSpec]]:
    def train() -> Any:
        return Csv(path=str(folder / "train"), label="label").read().batch(4).shuffle(seed=1).repeat()

    def evaluated(name: str) -> Any:
        return lambda: Csv(path=str(folder / name)).read().batch(10)

    return TrainSpec(train, max_steps), [
        EvalSpec(evaluated("eval"), None, start_delay_secs=0, throttle_secs=0),
        EvalSpec(evaluated("other"), None, "a b", start_delay_secs=0, throttle_secs=0),
    ]


def trained(folder: Path, max_steps: int) -> Attempt:
    train_spec, eval_specs = specs(folder, max_steps)
    with Attempt(estimator_in(folder), train_spec, eval_specs) as attempt:
        run_local(attempt.job(), lambda event: None, attempt.check)
    return attempt


ALL = ["the train input", "the eval input", "the eval_a b input"]


def test_files_are_scanned_once_for_all_roles_and_later_attempts(folder: Path, scans: list[str]) -> None:
    train_spec, eval_specs = specs(folder, 10)
    Attempt(estimator_in(folder), train_spec, eval_specs)
    assert not (folder / "model").exists()  # a plan writes nothing
    scans.clear()
    trained(folder, 10)
    assert scans == ALL
    assert sorted(os.listdir(folder / "model" / "inputs")) == ["eval", "eval_a%20b", "train"]
    kept = {name: (folder / "model" / "inputs" / name).read_bytes() for name in os.listdir(folder / "model" / "inputs")}
    trained(folder, 15)
    assert scans == ALL
    assert kept == {name: (folder / "model" / "inputs" / name).read_bytes() for name in kept}


def test_what_a_job_learns_from_is_held_against_its_checkpoint_again(folder: Path, scans: list[str]) -> None:
    trained(folder, 10)
    scans.clear()
    (folder / "train" / "u.csv").write_text("word,number,label\n" + ROWS)  # teaches the same
    trained(folder, 15)
    assert scans == ALL  # of evaluations, too: a model knows how many records it has learned from
    (folder / "train" / "v.csv").write_text("word,number,label\nc,1,1\n")
    with pytest.raises(ModelDirError, match=r"(?s)another model.*'c'"):
        trained(folder, 20)


def test_a_scan_of_an_input_that_is_no_more_is_removed(folder: Path) -> None:
    trained(folder, 5)
    train_spec, eval_specs = specs(folder, 10)
    with Attempt(estimator_in(folder), train_spec, eval_specs[:1]):
        assert sorted(os.listdir(folder / "model" / "inputs")) == ["eval", "train"]


@pytest.mark.parametrize("name", ["train", "eval"])
def test_a_role_refuses_a_file_that_has_changed_since_the_flow_scanned_it(folder: Path, name: str) -> None:
    train_spec, eval_specs = specs(folder, 10)
    with Attempt(estimator_in(folder), train_spec, eval_specs) as attempt:
        (folder / name / "t.csv").write_text("word,number,label\n")
        with pytest.raises(InputError, match=rf"/{name}/t.csv has changed since it was scanned: its size .*; run the"):
            run_local(attempt.job(), lambda event: None, attempt.check)


def test_damage_is_scanned_again(folder: Path, scans: list[str], caplog: pytest.LogCaptureFixture) -> None:
    trained(folder, 5)
    scans.clear()
    (folder / "model" / "inputs" / "eval").write_bytes(b"")
    trained(folder, 10)
    assert scans == ["the eval input"]
    assert f"{folder}/model/inputs/eval is damaged" in caplog.text


def test_what_cannot_be_read_is_named(folder: Path) -> None:
    trained(folder, 5)
    (folder / "model" / "inputs" / "train").unlink()
    (folder / "model" / "inputs" / "train").mkdir()
    with pytest.raises(
        InputError, match=rf"^cannot read {folder}/model/inputs/train: Is a directory; correct its perm"
    ):
        trained(folder, 10)


def test_a_model_dir_may_be_a_url(folder: Path, scans: list[str]) -> None:
    kept = KeptInputs("memory://kept/model")
    train_spec, eval_specs = specs(folder, 5)
    estimator = estimator_in(folder)
    planned = Attempt(estimator, train_spec, eval_specs).plan
    kept.write(planned.datasets)
    kept.write(planned.datasets)
    scans.clear()
    plan_evaluations(estimator.caller, eval_specs, planned.model, estimator.check_labels, kept)
    assert scans == []
    kept.write({})
    plan_evaluations(estimator.caller, eval_specs, planned.model, estimator.check_labels, kept)
    assert scans == ALL[1:]


def test_a_replay_takes_what_is_kept_for_the_same_input(folder: Path, scans: list[str]) -> None:
    attempt = trained(folder, 5)
    scans.clear()
    estimator, kept = estimator_in(folder), KeptInputs(str(folder / "model"))
    _, [spec, _] = specs(folder, 5)
    model = attempt.plan.model
    plan_evaluations(estimator.caller, [spec], model, estimator.check_labels, kept)
    assert scans == []
    _, [_, spec] = specs(folder, 5)
    plan_evaluations(estimator.caller, [spec], model, estimator.check_labels, kept)  # as eval, which is other files
    assert scans == ["the eval input"]
