"""``psflow plan`` says what would be done and what is missing; it starts nothing and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import LocalCluster

from psflow.flows import cli
from psflow.flows.looking.plan import plan
from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import ConfigError
from tests.flows.conftest import TABLE_CONF

MORE = """
seed: 1
cluster: {ps: 2}
"""


@pytest.fixture(autouse=True)
def directory(table: Path) -> Path:
    Path("t.yaml").write_text(TABLE_CONF + MORE)
    return table


def contents(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*"))


def test_what_is_ready_is_told_and_nothing_is_written(directory: Path) -> None:
    answer = plan(["t.yaml"])
    facts = answer.facts
    assert (answer.exit_code, facts["ready"], facts["faults"]) == (0, True, [])
    assert facts["model"] == {"name": "DNNClassifier", "variables": 4, "bytes": 88, "tables": []}
    assert facts["input"] == {"train": 3, "eval": 3}
    assert facts["model_dir"]["state"] == "a new job"
    assert [role["role"] for role in facts["roles"]] == ["ps-0", "ps-1", "chief-0", "worker-0", "evaluator-0"]
    assert facts["roles"][0]["bytes"] > 0
    assert facts["cluster"]["slots"] == 5
    assert facts["prefect"]["address"] is None
    assert facts["mlflow"] == {
        "address": f"sqlite:///{directory}/mlflow.db",
        "state": "a file that the first run creates",
        "ok": True,
    }
    assert answer.lines is not None
    assert answer.lines[-1] == "ready; nothing was started or written"
    assert contents(directory) == ["t.csv", "t.yaml"]


def test_a_job_that_is_there_is_resumed_or_done() -> None:
    settings = read_settings(["t.yaml"])
    training = build_training(parse_parameters(settings.values, settings.origins))
    training.estimator.train(training.train_spec.input_fn, max_steps=2)
    done = plan(["t.yaml"])
    assert done.lines is not None
    assert f"model_dir    {Path.cwd()}/runs/t: is at step 2: there is nothing left to train" in done.lines
    assert done.lines[-1] == "ready; there is nothing left to train"
    assert plan(["t.yaml", "train.max_steps=9"]).facts["model_dir"]["state"] == "resumes from step 2"


def test_the_mlflow_run_of_a_job_must_be_there() -> None:
    job = JobFile("runs/t")
    job.claim()
    job.update(run_id="f" * 32)
    job.release()
    [fault] = plan(["t.yaml"]).facts["faults"]
    assert fault.startswith(f"the MLflow run {'f' * 32} of this job is not in sqlite:///")


def test_what_an_evaluation_has_beside_is_told() -> None:
    Path("other.csv").write_text("who,b,y,a\nann,2,0,1\nbob,4,1,3\n")
    answer = plan(["t.yaml", "input.eval.path=other.csv"])
    assert answer.facts["faults"] == []
    assert answer.facts["ignored"] == ["the eval input has 'who', which the model does not read: ignored"]


def test_many_roles_are_summed_up_and_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    few, many = (plan(["t.yaml", f"cluster.ps={ps}", "cluster.workers=2"]).lines or [] for ps in (4, 1000))
    told = [line for line in many if line.startswith(("roles", "cluster"))]
    assert told == [
        "roles        ps-0 to ps-999 (88 bytes in all), chief-0, worker-0 to worker-1, evaluator-0",
        "cluster      one of its own on this machine: 1004 processes on 2 processors; too many: lower cluster.ps or "
        "cluster.workers, or name a larger cluster with cluster.address",
    ]
    assert "cluster      one of its own on this machine: 8 processes on 2 processors" in few


def test_a_fault_is_told_once() -> None:
    Path("file").touch()
    [fault] = plan(["t.yaml", "model_dir=file"]).facts["faults"]
    assert fault == f"model_dir file: expected a directory, but {Path.cwd()}/file is a file; choose another"


def test_every_fault_is_told_not_only_the_first(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setattr("psflow.flows.looking.endpoints.named_api_url", lambda: "http://127.0.0.1:1/api")
    monkeypatch.setattr("psflow.ps_runtime.cluster.connecting.CONNECT_TIMEOUT_SECS", 0.2)
    answer = plan(["t.yaml", "input.eval.label=z", "cluster.address=tcp://127.0.0.1:1"])
    assert answer.exit_code == 2
    faults = answer.facts["faults"]
    assert len(faults) == 4
    for fault, words in zip(
        faults,
        (
            "t.csv has no column 'z'; its columns are 'a', 'b', 'y'",
            "no Dask scheduler answers at tcp://127.0.0.1:1 within 0.2 s",
            "the Prefect API at http://127.0.0.1:1/api does not answer",
            "the MLflow store http://127.0.0.1:1 cannot be used",
        ),
        strict=True,
    ):
        assert words in fault
    assert answer.lines is not None
    assert answer.lines[-4:] == [f"- {fault}" for fault in faults]
    assert contents(directory) == ["t.csv", "t.yaml"]


def test_a_cluster_is_asked_for_its_slots() -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=4, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0"
    ) as few:
        answer = plan(["t.yaml", f"cluster.address={few.scheduler_address}"])
        assert answer.facts["faults"] == [
            f"the job has 5 roles, but the Dask cluster at {few.scheduler_address} has 4 free slots; "
            "start more Dask workers, or ask for fewer roles (cluster.ps, cluster.workers)"
        ]
        assert answer.facts["cluster"] == {"address": few.scheduler_address, "slots": 4, "free": 4}
        assert plan(["t.yaml", "cluster.ps=1", f"cluster.address={few.scheduler_address}"]).facts["ready"]


def test_a_job_that_somebody_else_runs_is_refused_or_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFile("runs/t")
    job.claim()
    monkeypatch.setattr(ProcessId, "is_alive", lambda self: True)
    monkeypatch.setattr(ProcessId, "current", lambda: ProcessId("elsewhere", "boot", 7, 7))
    assert "is in use by process" in plan(["t.yaml"]).facts["faults"][0]
    answer = plan(["t.yaml", "resume.when_running=wait"])
    assert answer.facts["faults"] == []
    assert "up to 60 s: model_dir" in answer.facts["waits"]


def test_what_is_no_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"command line: cluster\.pss: unknown key; did you mean 'ps'\?"):
        plan(["t.yaml", "cluster.pss=2"])


def test_the_command_ends_with_2_where_something_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["plan", "t.yaml"]) == 0
    assert cli.run(["plan", "t.yaml", "input.eval.label=z"]) == 2
    assert "not ready:\n- " in capsys.readouterr().out
