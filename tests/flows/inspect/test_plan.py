"""``psflow plan`` reports a training and its faults; it starts and writes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import prefect._vendor.croniter  # noqa: F401 - its import starts a program, which no test here does
import pytest
from distributed import LocalCluster

from psflow.flows import cli
from psflow.flows.inspect.doctor import cluster_findings
from psflow.flows.inspect.plan import plan
from psflow.flows.parameters.configuration import read_settings
from psflow.flows.parameters.train import parse_parameters
from psflow.flows.planning.building import build_training
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.cluster.connecting import open_cluster
from psflow.ps_runtime.cluster.ordered_results import check_client
from psflow.ps_runtime.cluster.own_security import own_security
from psflow.ps_runtime.errors import ConfigError
from tests.dask_tls import certificates_named
from tests.flows.conftest import TABLE_CONF
from tests.limits import HANG_SECS

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


def test_a_process_of_a_manual_cluster_starts_no_other(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand = '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", by_hand)
    answer = plan(["t.yaml"])
    assert (answer.exit_code, answer.facts["ready"]) == (2, False)
    [fault] = answer.facts["faults"]
    assert fault.startswith("this process is ps 0 of a cluster whose chief is at a:1, but this call")


def test_what_is_ready_is_reported_and_nothing_is_written(directory: Path) -> None:
    answer = plan(["t.yaml"])
    facts = answer.facts
    assert (answer.exit_code, facts["ready"], facts["faults"]) == (0, True, [])
    assert facts["model"] == {"name": "DNNClassifier", "variables": 4, "bytes": 68, "tables": []}
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


@pytest.mark.parametrize(
    ("model", "num_variables"),
    [
        ("{name: LinearClassifier}", 2),
        ("{name: LinearRegressor, params: {optimizer: {name: Adam}}}", 2),
        ("{name: DNNRegressor, params: {hidden_units: [4, 3], label_dimension: 1}}", 6),
    ],
)
def test_each_canned_model_is_planned(model: str, num_variables: int) -> None:
    facts = plan(["t.yaml", f"model={model}"]).facts
    assert facts["faults"] == []
    assert facts["model"]["variables"] == num_variables
    assert model.startswith(f"{{name: {facts['model']['name']}")


def test_where_each_worker_reads_all_the_size_of_an_epoch_is_reported() -> None:
    assert "epoch" not in plan(["t.yaml"]).facts
    answer = plan(["t.yaml", "train.each_worker_reads_all=true", "cluster.workers=2"])
    assert answer.facts["faults"] == []
    assert answer.facts["epoch"] == {"each_worker_reads_all": True, "replicas": 3, "examples": 9, "batches": None}
    assert "epoch        each of 3 replicas reads the whole training input: 9 examples" in (answer.lines or [])


BY_NUMBER = [
    "model={name: tests.flows.user_models:line, params: {learning_rate: 0.1}}",
    "input={train: {name: tests.flows.user_models:numbered}, eval: {name: tests.flows.user_models:numbered}}",
    "best.metric=loss",
]


def test_of_a_data_set_by_number_the_batches_are_reported() -> None:
    answer = plan(["t.yaml", *BY_NUMBER])
    assert answer.facts["faults"] == []
    assert answer.facts["input"] == {}
    assert "input        train: 6 batches" in (answer.lines or [])
    assert "epoch" not in answer.facts


def test_where_each_worker_reads_all_batches_of_a_data_set_by_number_they_are_counted() -> None:
    answer = plan(["t.yaml", *BY_NUMBER, "train.each_worker_reads_all=true", "cluster.workers=2"])
    assert answer.facts["faults"] == []
    assert answer.facts["epoch"] == {"each_worker_reads_all": True, "replicas": 3, "examples": None, "batches": 18}
    assert "epoch        each of 3 replicas reads the whole training input: 18 batches" in (answer.lines or [])


def test_of_generators_no_size_is_reported() -> None:
    train = "train: {name: tests.flows.user_models:points, params: {num_batches: 3}}"
    generators = f"input={{{train}, eval: {{name: tests.flows.user_models:held_out}}}}"
    answer = plan(["t.yaml", *BY_NUMBER, generators, "input.eval.non_finite=keep", "train.each_worker_reads_all=true"])
    assert answer.facts["faults"] == []
    assert answer.facts["epoch"] == {"each_worker_reads_all": True, "replicas": 2, "examples": None, "batches": None}
    assert "epoch        each of 2 replicas reads the whole training input" in (answer.lines or [])


def test_a_job_that_is_there_is_resumed_or_done() -> None:
    settings = read_settings(["t.yaml"])
    training = build_training(parse_parameters(settings.values, settings.origins))
    training.estimator.train(training.train_spec.input_fn, max_steps=2)
    done = plan(["t.yaml"])
    assert done.lines is not None
    assert f"model_dir    {Path.cwd()}/runs/t: is at step 2: training is complete" in done.lines
    assert done.lines[-1] == "ready; training is complete"
    assert plan(["t.yaml", "train.max_steps=9"]).facts["model_dir"]["state"] == "resumes from step 2"
    Path("runs/t/job.json").unlink()
    assert "of step 2, but no job.json: a new job continues from there" in plan(["t.yaml"]).facts["lost_job"]
    assert "runs/t has checkpoints, but no config.yaml" in plan(["t.yaml"]).facts["lost_config"]


def test_a_job_whose_input_has_ended_says_so() -> None:
    asked = ["t.yaml", "input.train.epochs=1", "train.max_steps=9"]
    settings = read_settings(asked)
    training = build_training(parse_parameters(settings.values, settings.origins))
    training.estimator.train(training.train_spec.input_fn, max_steps=9)
    why = "the input ended after 2 of 9 steps (3 examples in 1 epoch); repeat() reads it again"
    assert plan(asked).facts["model_dir"]["state"] == f"resumes from step 2, where {why}"


def test_the_mlflow_run_of_a_job_must_be_there() -> None:
    job = JobFile("runs/t")
    job.claim()
    job.update(run_id="f" * 32)
    job.release()
    [fault] = plan(["t.yaml"]).facts["faults"]
    assert fault.startswith(f"the MLflow run {'f' * 32} of this job is not in sqlite:///")


def test_what_an_evaluation_has_beside_is_reported() -> None:
    Path("other.csv").write_text("who,b,y,a\nann,2,0,1\nbob,4,1,3\n")
    answer = plan(["t.yaml", "input.eval.path=other.csv"])
    assert answer.facts["faults"] == []
    assert answer.facts["ignored"] == ["the eval input has 'who', which the model does not read: ignored"]


PEOPLE_CONF = """
experiment: p
model: {name: LinearClassifier, params: {n_classes: 2}}
input:
  train:
    {format: csv, path: p.csv, label: income, batch_size: 2, columns: {age: {normalize: standard, impute: mean}}}
  eval: {format: csv, path: p.csv}
train: {max_steps: 2}
"""
PEOPLE = "age,job,income\n20,clerk,low\n,smith,high\n40,clerk,low\n"


@pytest.fixture
def people(directory: Path) -> str:
    Path("p.csv").write_text(PEOPLE)
    Path("p.yaml").write_text(PEOPLE_CONF)
    return "p.yaml"


def test_what_was_learned_of_columns_is_reported(people: str) -> None:
    answer = plan([people])
    assert answer.facts["faults"] == []
    learned = [
        "age: mean 30, standard deviation 10, 1 missing value becomes 30",
        "job: 2 categories; the most frequent is 'clerk'",
        "income: labels, classes 'high', 'low'",
    ]
    assert answer.facts["columns"] == learned
    assert answer.lines is not None
    place = answer.lines.index("columns      2 columns read for features, of 3 records")
    assert answer.lines[place + 1 : place + 4] == [f"{'':<13}{line}" for line in learned]


def test_a_resumed_job_is_held_against_what_was_learned_of_columns_before_anything_starts(people: str) -> None:
    settings = read_settings([people])
    training = build_training(parse_parameters(settings.values, settings.origins))
    training.estimator.train(training.train_spec.input_fn, max_steps=1)
    assert plan([people]).facts["faults"] == []
    Path("p.csv").write_text(PEOPLE.replace("40", "60").replace("smith", "Smith"))
    first, *differences = plan([people]).facts["faults"]
    assert first.startswith(f"{Path.cwd()}/runs/p holds checkpoints of another model (the latest is of step 1)")
    assert [line.partition(" expected")[0] for line in differences] == [
        "training input: column 'age' has fill 40.0,",
        "training input: column 'age' has mean 40.0,",
        "training input: column 'age' has standard deviation 20.0,",
        "training input: column 'job' has other vocabulary: new 'Smith'; missing 'smith'",
    ]


def test_many_roles_are_summed_up_and_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    few, many = (plan(["t.yaml", f"cluster.ps={ps}", "cluster.workers=2"]).lines or [] for ps in (4, 1000))
    told = [line for line in many if line.startswith(("roles", "cluster"))]
    assert told == [
        "roles        ps-0 to ps-999 (68 bytes in all), chief-0, worker-0 to worker-1, evaluator-0",
        "cluster      a local one: 1004 processes on 2 processors; too many: lower cluster.ps or "
        "cluster.workers, or name a larger cluster with cluster.address",
    ]
    assert "cluster      a local one: 8 processes on 2 processors" in few


BLANKS = "a,b,y\n1,2,0\n3,,1\n,6,0\n7,8,\n9,inf,1\n"


def test_cells_that_are_no_numbers_are_reported_per_column_and_input() -> None:
    Path("t.csv").write_text(BLANKS)
    Path("u.csv").write_text("a,b,y\n1,2,0\n3,nan,1\n")
    answer = plan(["t.yaml", "input.eval.path=u.csv"])
    assert answer.exit_code == 2
    assert [fault.partition(": ")[2].partition("; empty lines")[0] for fault in answer.facts["faults"]] == [
        "column 'a' has 1 cell that is missing, NaN or infinite, the first in row 4 (the header is row 1",
        "column 'b' has 2 cells that are missing, NaN or infinite, the first in row 3 (the header is row 1",
        "column 'y' has 1 cell that is missing, NaN or infinite, the first in row 5 (the header is row 1",
        "column 'b' has 1 cell that is missing, NaN or infinite, the first in row 3 (the header is row 1",
    ]
    answer = plan(["t.yaml", "input.train.non_finite=drop", "input.eval.path=u.csv", "input.eval.non_finite=keep"])
    facts = answer.facts
    assert (facts["faults"], facts["input"]) == ([], {"train": 1, "eval": 2})
    assert facts["not_finite"]["train"]["columns"]["column 'b'"] == {"cells": 2, "first_row": 3}
    assert [(each["rows"], each["dropped"]) for each in facts["not_finite"].values()] == [(4, True), (1, False)]
    assert answer.lines is not None
    assert (
        "not finite   train: 4 rows that have a missing, NaN or infinite cell left out; "
        "eval: 1 row that has a missing, NaN or infinite cell kept" in answer.lines
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("schedule.cron=whenever", "command line: schedule.cron: "),
        ("schedule.cron=0 3 31 2 *", "command line: schedule.cron: "),
        ("schedule={cron: '0 3 * * *', timezone: Mars/Olympus}", "command line: schedule.timezone: "),
        ("pipeline.predict.input=no.csv", "there is no file "),
        ("pipeline.evaluate.overrides=['input.eval.label=z']", "has no column 'z'"),
    ],
)
def test_what_runs_later_is_looked_at_now(override: str, words: str) -> None:
    answer = plan(["t.yaml", override])
    assert answer.exit_code == 2
    [fault] = answer.facts["faults"]
    assert words in fault


LATE = """
from psflow import EstimatorSpec, GradientDescent, ModeKeys, get_variable

def model(features, labels, mode):
    x = features["features"]
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"y": x @ get_variable("w", (3,))})
    w = get_variable("w", (2,))
    train_op = GradientDescent(learning_rate=0.1).apply_gradients({"w": 2 * x.T @ (x @ w - labels)})
    return EstimatorSpec(mode, loss=float(((x @ w - labels) ** 2).mean()), train_op=train_op)
"""


def test_a_model_that_cannot_predict_is_reported_before_it_is_trained() -> None:
    Path("late_bug.py").write_text(LATE)
    Path("u.yaml").write_text((TABLE_CONF + MORE).replace("model:", "model: {name: 'late_bug:model'} #"))
    [fault] = plan(["u.yaml"]).facts["faults"]
    assert fault.startswith("late_bug:model raised ValueError in infer mode at late_bug.py:7: matmul")


def test_a_schedule_that_prefect_takes_is_reported() -> None:
    answer = plan(["t.yaml", "schedule.cron=0 3 * * 1", "schedule.timezone=Europe/Berlin"])
    assert answer.facts["faults"] == []
    assert answer.lines is not None
    assert "schedule     pipeline: 0 3 * * 1 (Europe/Berlin), by psflow serve" in answer.lines


def test_a_fault_is_reported_once() -> None:
    Path("file").touch()
    [fault] = plan(["t.yaml", "model_dir=file"]).facts["faults"]
    assert fault == f"model_dir file: expected a directory, but {Path.cwd()}/file is a file; choose another"


def test_every_fault_is_reported_not_only_the_first(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setattr("psflow.flows.inspect.endpoints.named_api_url", lambda: "http://127.0.0.1:1/api")
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
        where = {"address": few.scheduler_address, "slots": 4, "free": 4}
        assert answer.facts["cluster"] == {**where, "tls": False}
        assert "hosts" not in answer.facts
        answer = plan(["t.yaml", "cluster.ps=1", f"cluster.address={few.scheduler_address}"])
        assert answer.facts["ready"]
        assert answer.facts["hosts"] == {"127.0.0.1": ["ps-0", "chief-0", "worker-0", "evaluator-0"]}


def test_a_scheduler_without_tls_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    security = own_security()
    options: Any = {"n_workers": 0, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(protocol="tcp", **options) as plain, LocalCluster(security=security, **options) as closed:
        address = f"cluster.address={closed.scheduler_address}"
        assert any("needs certificates, but" in fault for fault in plan(["t.yaml", address]).facts["faults"])
        with certificates_named(security):
            answer = plan(["t.yaml", address])
        assert (answer.facts["cluster"]["tls"], "open" in answer.facts) == (True, False)
        assert logged(caplog) == []
        reported = [plan(["t.yaml", f"cluster.address={plain.scheduler_address}"]).facts["open"]]
        reported.append(next(cluster_findings(plain.scheduler_address, Path())).text)
        with open_cluster(plain.scheduler_address, 0) as client:
            (warning,) = logged(caplog)
            check_client(client)
            check_client(client)  # at each call of a program
            assert logged(caplog) == [warning] * 2
    words = f"the Dask scheduler at {plain.scheduler_address} has no TLS: anyone who can connect to it can run code"
    assert [text[: len(words)] for text in (*reported, warning)] == [words] * 3


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("psflow.")]


def test_a_job_that_another_process_runs_is_refused_or_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.process
def test_where_nothing_names_an_api_neither_prefect_nor_mlflow_is_imported(directory: Path) -> None:
    program = "import sys; from psflow.flows import cli; code = cli.run(['plan', 't.yaml'])"
    program += "; print(code, {'prefect', 'mlflow'} & {*sys.modules})"
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith("PREFECT_")}
    environment["PREFECT_HOME"] = str(directory / "prefect")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=HANG_SECS
    )
    assert done.stdout.splitlines()[-1] == "0 set()", done.stdout + done.stderr
