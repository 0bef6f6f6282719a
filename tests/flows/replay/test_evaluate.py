"""Replay: old checkpoints against any data, on a cluster that is up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from threadpoolctl import threadpool_limits

from psflow.flows.cli import run
from psflow.flows.evaluate import evaluate
from psflow.flows.parameters.stages import EvaluateParameters
from psflow.flows.parameters.train import TrainParameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.records import EvaluationLog
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.errors import EvaluationFailedError, StorageError, UsageError
from psflow.tasks.tracking.child_run import TrainingRun, open_child_run
from tests.flows.replay.conftest import CONFIG

pytestmark = pytest.mark.process


STEPS = [0, 2, 4, 6]


def replay(trained: Path, cluster: dict[str, Any], **values: Any) -> dict[str, Any]:
    parameters = {"model_dir": str(trained), "cluster": cluster, **values}
    return evaluate(EvaluateParameters.model_validate(parameters))


def client_of(trained: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{trained.parent}/mlflow.db")


def lines(trained: Path) -> list[str]:
    return (trained / "evaluations.jsonl").read_text().splitlines()


def begun_again(trained: Path, facts: dict[str, Any]) -> str:
    """Make the MLflow run of a replay that has written nothing into it yet."""
    tracker = open_child_run(
        f"sqlite:///{trained.parent}/mlflow.db",
        kind="evaluate",
        experiment="line",
        model_dir=str(trained),
        parent=TrainingRun(facts["parent_run_id"], "line", str(trained)),
        run_name="evaluate line",
        tags={},
    )
    tracker.close("KILLED")
    return tracker.run_id


@pytest.mark.cluster(shared=True)
def test_replay_is_what_one_by_one_is(trained: Path, cluster: dict[str, Any]) -> None:
    facts = replay(trained, cluster)
    assert (facts["checkpoints"], facts["evals"], facts["num_evaluated"]) == (STEPS, ["eval", "more"], 8)
    assert (facts["num_known"], facts["failed"], facts["record"]) == (0, [], f"{trained}/evaluations.jsonl")

    training = build_training(TrainParameters.model_validate({**CONFIG, "model_dir": str(trained)}))
    store = CheckpointStore(str(trained))
    with threadpool_limits(limits=1):
        expected = {
            (spec.name or "", step): training.estimator.evaluate(
                spec.input_fn, spec.steps, checkpoint_path=store.path(step)
            )
            for spec in training.eval_specs
            for step in STEPS
        }
    assert {(e.name, e.global_step): e.metrics for e in EvaluationLog(str(trained)).read()} == expected
    assert not list(trained.glob("pins/*"))

    client, parent = client_of(trained), JobFile(str(trained)).read()
    assert parent is not None
    child = client.get_run(facts["run_id"])
    assert facts["parent_run_id"] == child.data.tags["mlflow.parentRunId"] == parent.run_id
    assert (child.info.status, child.data.tags["psflow.kind"]) == ("FINISHED", "evaluate")
    for name, prefix in (("", "eval"), ("more", "eval_more")):
        curve = {p.step: p.value for p in client.get_metric_history(facts["run_id"], f"{prefix}/loss")}
        assert curve == {step: expected[name, step]["loss"] for step in STEPS}

    again = replay(trained, cluster)  # there is nothing left to do
    assert (again["run_id"], again["num_evaluated"], again["num_known"]) == (None, 0, 8)
    assert len(lines(trained)) == 8

    client.delete_run(facts["run_id"])  # as if it had been killed between the record and MLflow
    killed = begun_again(trained, facts)
    told = replay(trained, cluster)
    assert (told["run_id"], told["num_evaluated"], told["num_known"]) == (killed, 0, 8)
    assert {p.step for p in client.get_metric_history(killed, "eval_more/loss")} == set(STEPS)
    assert client.get_run(killed).info.status == "FINISHED"

    forced = replay(trained, cluster, checkpoints="latest", force=True)
    assert (forced["num_evaluated"], len(lines(trained))) == (2, 10)
    assert forced["run_id"] not in (None, facts["run_id"])


@pytest.mark.cluster(shared=True)
def test_one_that_fails_is_reported_and_not_recorded_and_the_others_go_on(
    trained: Path, cluster: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    file = next(trained.glob("checkpoints/step_00000004/*.safetensors"))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(EvaluationFailedError, match=r"^step 4 on eval: checkpoint .*\nstep 4 on more: ") as caught:
        replay(trained, cluster)
    assert [fault["step"] for fault in caught.value.facts["failed"]] == [4, 4]
    assert not any(record.exc_info for record in caplog.records if record.name.startswith("prefect"))
    assert EvaluationLog(str(trained)).evaluated("more") == {0, 2, 6}
    child = caught.value.facts["run_id"]
    assert client_of(trained).get_run(child).info.status == "FAILED"

    file.write_bytes(whole)
    facts = replay(trained, cluster)
    assert (facts["num_evaluated"], facts["num_known"], facts["run_id"]) == (2, 6, child)
    assert client_of(trained).get_run(child).info.status == "FINISHED"


@pytest.mark.cluster(shared=True)
def test_a_record_that_cannot_be_written_ends_it(trained: Path, cluster: dict[str, Any]) -> None:
    (trained / "evaluations.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"evaluations\.jsonl could not be written: Is a directory"):
        replay(trained, cluster, checkpoints="last:2")


@pytest.mark.cluster(shared=True)
def test_other_data_need_another_name(trained: Path, cluster: dict[str, Any]) -> None:
    few = {"format": "csv", "path": str(trained.parent / "few.csv"), "label": "y"}
    (trained.parent / "few.csv").write_text("x,y\n1,3\n2,5\n")

    def on_table(name: str, **values: Any) -> dict[str, Any]:
        overrides = ["input.eval=" + json.dumps(few), "evals={}", f"eval.name={name}"]
        return replay(trained, cluster, checkpoints="latest", overrides=overrides, **values)

    first = on_table("few")
    assert on_table("few")["num_known"] == 1
    (trained.parent / "few.csv").write_text("x,y\n1,3\n2,6\n")
    with pytest.raises(UsageError, match=r"^evaluation 'few' has different data, .* \(checkpoints 6\); rename it"):
        on_table("few")
    other = on_table("other")
    assert other["results"][0]["metrics"] != first["results"][0]["metrics"]
    assert on_table("few", force=True)["results"][0]["metrics"] == other["results"][0]["metrics"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--checkpoints", "5"], "no such checkpoint: {} has none of step 5, the nearest is 4; there are 0, 2, 4, 6"),
        (["--checkpoints", "lates"], "got 'lates'; did you mean 'latest'?"),
        (["--checkpoints", "best"], "{} has no best checkpoint"),
        (["evals.more.stepz=3"], "command line: evals.more.stepz: unknown key; did you mean 'steps'?"),
        (["cluster.worker=3"], "command line: cluster.worker: unknown key; did you mean 'workers'?"),
        (["--run-id", "0123"], "expected model_dir or run_id, got both"),
        (
            ["model.name=tests.flows.user_models:other_line"],
            "creates variable 'slope' in eval but not in the checkpoint",
        ),
    ],
)
def test_what_cannot_be_is_reported_before_anything_starts(
    trained: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["evaluate", "--model-dir", str(trained), *arguments]) == 2
    assert words.format(trained) in capsys.readouterr().err


def test_a_model_dir_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate"]) == 2
    assert "expected model_dir, run_id or a configuration file, got none" in capsys.readouterr().err
    assert run(["evaluate", "--model-dir", str(tmp_path)]) == 2
    assert f"{tmp_path} has no config.yaml: expected a model_dir that psflow has trained in" in capsys.readouterr().err


def test_a_run_that_is_not_there(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", "--run-id", "0123"]) == 2
    assert "there is no run 0123 in the MLflow store sqlite:" in capsys.readouterr().err
