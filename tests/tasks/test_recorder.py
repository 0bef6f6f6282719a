"""Records of a program's jobs in MLflow: the earlier results, and the process that writes them."""

from __future__ import annotations

import json
import math
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import dask
import mlflow
import psutil
import pytest
from distributed import Client, LocalCluster
from mlflow import MlflowClient
from mlflow.entities import Run

import psflow
from psflow import (
    Estimator,
    EstimatorSpec,
    EvalSpec,
    MonitoredTrainingSession,
    ParameterServerStrategy,
    RunConfig,
    SessionRunHook,
    TrainSpec,
    run_distribute_coordinator,
    train_and_evaluate,
)
from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.records import EvaluationLog, EvaluationRecord
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator import recorder, recording
from psflow.ps_runtime.estimator.recorder import BEGIN, END, RecordingRequest
from psflow.ps_runtime.estimator.recording import RunPlace, requested_run
from psflow.ps_runtime.model.best import BestRecord
from psflow.ps_runtime.model.export.directory import ExportRecord
from psflow.ps_runtime.roles.event_codec import encode_event
from psflow.ps_runtime.roles.events import Evaluation, Export, Metrics, Restored
from psflow.tasks.exports.writer import MlflowModelWriter
from psflow.tasks.owners import OWNER, is_orphaned
from psflow.tasks.recorder import _record, events_on_disk
from psflow.tasks.tracking.store import mlflow_client
from tests.free_ports import free_address
from tests.limits import HANG_SECS
from tests.ps_runtime.estimator.regression import FailAt, records, regression
from tests.started_processes import num_started
from tests.tasks.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
EVAL = EvalSpec(records, steps=None, start_delay_secs=0, throttle_secs=0)


@pytest.fixture(autouse=True)
def _no_autolog(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(recording, "_autolog", None)
    yield
    recorder.end_writers()  # as at the end of a program


@pytest.fixture
def client(store: str, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """Name the store to this process and to those that it starts; return a client of it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    return mlflow_client(store)


def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> EstimatorSpec:
    return regression(features, labels, mode)


def estimator(model_dir: Path, **config: Any) -> Estimator:
    settings: dict[str, Any] = {"save_checkpoints_steps": 5, "log_step_count_steps": 5, "save_summary_steps": 5}
    return Estimator(model_fn, model_dir, RunConfig(**settings | config), {"units": [4, 2]})


def run_session(estimator: Estimator) -> None:
    with MonitoredTrainingSession(estimator, records, hooks=[FailAt(7)]) as session:
        while not session.should_stop():
            session.run()


def runs_of(client: MlflowClient) -> list[Run]:
    return list(client.search_runs([each.experiment_id for each in client.search_experiments()]))


def steps_of(client: MlflowClient, run: Run, key: str) -> list[int]:
    return [point.step for point in client.get_metric_history(run.info.run_id, key)]


class KillTheWriter(SessionRunHook):
    """Kills the process that writes to MLflow, before step 3."""

    def before_run(self, run_context: Any) -> None:
        if run_context.session.global_step == 2:
            [writer] = writers()
            writer.kill()


def writers() -> list[psutil.Process]:
    programs = {"psflow.tasks.recorder", "tests.echoing_recorder"}
    return [child for child in psutil.Process().children() if programs & set(child.cmdline())]


@pytest.mark.process
def test_training_in_an_active_run_is_recorded_there_and_leaves_the_run_to_the_user(
    client: MlflowClient, tmp_path: Path
) -> None:
    with mlflow.start_run(run_name="mine") as active:
        mlflow.log_metric("mine", 1.0)
        estimator(tmp_path / "model").train(records, max_steps=10)
        during = client.get_run(active.info.run_id)
    [run] = runs_of(client)
    assert during.info.status == "RUNNING"
    assert OWNER not in run.data.tags  # nobody but the user ends it
    assert (run.info.run_id, run.info.run_name, run.info.status) == (active.info.run_id, "mine", "FINISHED")
    assert steps_of(client, run, "loss") == [5, 10]
    assert steps_of(client, run, "bias") == [5, 10]
    assert run.data.metrics["mine"] == 1.0
    assert run.data.params["train.max_steps"] == "10"
    assert run.data.params["model.params.units"] == "[4, 2]"
    record = JobFile(str(tmp_path / "model")).read()
    assert record is not None
    assert (record.run_id, record.job_id) == (run.info.run_id, run.data.tags["psflow.job_id"])
    models = client.search_logged_models([run.info.experiment_id])
    assert sorted(model.name for model in models) == ["checkpoint-0", "checkpoint-10", "checkpoint-5"]


@pytest.mark.process
def test_a_resumed_job_continues_its_run(client: MlflowClient, tmp_path: Path) -> None:
    psflow.autolog(experiment="digits")
    with pytest.raises(ZeroDivisionError):
        run_session(estimator(tmp_path / "model"))
    [failed] = runs_of(client)
    assert failed.info.status == "FAILED"
    psflow.autolog(disable=True)
    resumed = estimator(tmp_path / "model", experiment="digits")
    train_and_evaluate(resumed, TrainSpec(lambda: records().repeat(), 15), EVAL)
    [run] = runs_of(client)
    assert (run.info.run_id, run.info.status) == (failed.info.run_id, "FINISHED")
    assert client.get_experiment(run.info.experiment_id).name == "digits"
    assert run.data.tags["psflow.attempts"] == "2"
    assert run.data.tags["psflow.stop_reason"] == "all steps are done"
    assert steps_of(client, run, "loss") == [5, 10, 15]
    assert set(steps_of(client, run, "eval/mae")) == {0, 5, 10, 15}


PROGRAM = """
import sys
import psflow
from psflow import Estimator, RunConfig, Server, TrainSpec
from tests.ps_runtime.estimator.regression import records, regression

model_dir, chief, ps, kind = sys.argv[1:]
config = RunConfig(cluster=Server({"chief": [chief], "ps": [ps]}, kind, 0).target, experiment="digits")
psflow.autolog("other")
psflow.TrainingExecutor(Estimator(regression, model_dir, config), TrainSpec(records, 5), None).run()
assert "mlflow" not in sys.modules
"""


@pytest.mark.process
def test_only_the_chief_of_a_manual_cluster_records_and_imports_no_mlflow(client: MlflowClient, tmp_path: Path) -> None:
    addresses = [free_address(), free_address()]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "model"), *addresses]
    processes = [subprocess.Popen([*command, kind], cwd=ROOT) for kind in ("ps", "chief")]
    assert [process.wait(HANG_SECS) for process in processes] == [0, 0]
    [run] = runs_of(client)
    assert run.info.status == "FINISHED"
    assert client.get_experiment(run.info.experiment_id).name == "digits"
    assert {"role/chief-0/rss_mb", "role/ps-0/rss_mb"} <= run.data.metrics.keys()


@pytest.fixture
def echoed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], tuple[dict[str, Any], list[Any]]]:
    """Have a program without MLflow take the record; return what reads the request and the messages that it got."""
    monkeypatch.setattr(MlflowModelWriter, "recorder", "tests.echoing_recorder")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def read() -> tuple[dict[str, Any], list[Any]]:
        request, *messages = map(json.loads, (tmp_path / "recorded.jsonl").read_text().splitlines())
        return request, messages

    return read


@pytest.mark.cluster
def test_a_job_on_dask_is_recorded_by_its_caller(tmp_path: Path, echoed: Any) -> None:
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 3, "processes": False, "dashboard_address": None}
    trained = estimator(tmp_path / "model", experiment="digits")
    heard: list[Any] = []
    with (
        dask.config.set({"temporary-directory": str(tmp_path)}),
        LocalCluster(**options) as dask_cluster,
        Client(dask_cluster) as on,
    ):
        train_and_evaluate(trained, TrainSpec(records, 5), EVAL, client=on, on_event=heard.append)
    request, messages = echoed()
    assert (request["experiment"], request["params"]["cluster"]) == ("digits", {"ps": 1, "workers": 0})
    kinds = [kind for kind, _ in messages]
    assert {"Metrics", "Checkpoint", "Evaluation"} < set(kinds)
    assert kinds[-1] == "End"
    assert {"Checkpoint", "Evaluation"} < {type(event).__name__ for event in heard}
    record = JobFile(str(tmp_path / "model")).read()
    assert record is not None
    assert record.run_id == "f00"


class Stop(SessionRunHook):
    """Ends training as a signal does."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def after_run(self, run_context: Any, run_values: Any) -> None:
        raise self._error


@pytest.mark.process
@pytest.mark.parametrize(
    ("error", "status"),
    [(KeyboardInterrupt(), "KILLED"), (SystemExit(143), "KILLED"), (SystemExit(2), "FAILED"), (OSError(), "FAILED")],
)
def test_what_ended_a_training_is_the_status_of_its_run(
    error: BaseException, status: str, tmp_path: Path, echoed: Any
) -> None:
    with pytest.raises(type(error)):
        estimator(tmp_path / "model", experiment="digits").train(records, hooks=[Stop(error)])
    assert echoed()[1][-1][1]["status"] == status


@pytest.mark.process
def test_the_function_of_a_coordinator_records_its_training(tmp_path: Path, echoed: Any) -> None:
    def worker_fn(strategy: Any) -> None:
        estimator(tmp_path / "model", experiment="digits").train(records, max_steps=1)

    run_distribute_coordinator(worker_fn, ParameterServerStrategy())
    assert echoed()[1][-1] == [
        "End",
        {"status": "FINISHED", "tags": {"psflow.stop_reason": "all steps are done"}, "timeout_secs": 60.0},
    ]


@pytest.mark.process
def test_the_store_is_named_to_no_other_user(tmp_path: Path, echoed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    class Hook(SessionRunHook):
        def begin(self) -> None:
            commands.extend(child.cmdline() for child in psutil.Process().children())

    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://bob:s3cret@host")
    estimator(tmp_path / "model", experiment="digits").train(records, hooks=[Hook()], max_steps=1)
    assert echoed()[0]["uri"] == "http://bob:s3cret@host"
    assert any("tests.echoing_recorder" in command for command in commands)
    assert "s3cret" not in str(commands)


def test_an_experiment_has_a_name() -> None:
    with pytest.raises(UsageError, match="experiment should be the name of an MLflow experiment, got ''; leave it out"):
        RunConfig(experiment="")


def test_a_store_in_the_environment_alone_records_nothing(client: MlflowClient, tmp_path: Path) -> None:
    before = num_started()
    estimator(tmp_path / "model").train(records, max_steps=1)
    assert num_started() == before
    assert runs_of(client) == []


@pytest.mark.process
def test_training_goes_on_without_its_writer(
    client: MlflowClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    psflow.autolog()
    estimator(tmp_path / "model").train(records, hooks=[KillTheWriter()], max_steps=10)
    assert CheckpointStore(str(tmp_path / "model")).latest() == 10
    [warning] = [each.message for each in caplog.records if each.name == recorder.__name__]
    assert warning == (
        "this training is not recorded in MLflow: the process that writes ended with signal SIGKILL; "
        "training continues; the next training in this model_dir completes the run with what is there"
    )


@pytest.mark.process
def test_a_store_that_cannot_be_used_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
        other.execute("INSERT INTO alembic_version VALUES ('f00')")
        other.commit()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/other.db")
    estimator(tmp_path / "model", experiment="digits").train(records, max_steps=1)
    [warning] = [each.message for each in caplog.records if each.name == recorder.__name__]
    assert warning.startswith(
        f"this training is not recorded in MLflow: the MLflow store sqlite:///{tmp_path}/other.db"
    )


@pytest.mark.process
def test_the_run_of_a_killed_program_is_killed(client: MlflowClient, store: str, tmp_path: Path) -> None:
    request = RecordingRequest(str(tmp_path / "model"), store, "digits", None, "first", False, False, ".")
    events = [
        Metrics(3, {"loss": 0.5}, role="chief-0", number=1),
        Restored(1, 0.5, role="chief-0", number=2),
        Metrics(2, {"accuracy": 0.5}, role="chief-0", number=3),
    ]
    lines = [(BEGIN, asdict(request)), *map(encode_event, events)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "psflow.tasks.recorder"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        stdout=subprocess.PIPE,
        text=True,
        timeout=HANG_SECS,
        env=child_environment({}),
        check=True,
    )
    [run] = runs_of(client)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [["opened", run.info.run_id], ["ended", "whole"]]
    assert run.info.status == "KILLED"
    assert (run.data.tags["psflow.lost_steps"], run.data.tags["psflow.reached_step"]) == ("2-3", "2")
    assert "system/cpu_utilization_percentage" in run.data.metrics
    assert steps_of(client, run, "loss") == [3]
    assert is_orphaned(run.data.tags)


PROGRAM_OF_MANY_CALLS = """
import json, os, signal, sys
import mlflow, psutil
from psflow import Estimator, RunConfig
from tests.ps_runtime.estimator.regression import records, regression

def writers():
    return [each.pid for each in psutil.Process().children() if "psflow.tasks.recorder" in each.cmdline()]

with mlflow.start_run() as active:
    estimator = Estimator(regression, sys.argv[1], RunConfig(log_step_count_steps=2))
    pids = []
    for _ in range(2):
        estimator.train(records, steps=2)
        pids.append(writers())
    estimator.evaluate(records, name="held")
    pids.append(writers())
    history = mlflow.MlflowClient().get_metric_history
    points = {key: [p.step for p in history(active.info.run_id, key)] for key in ("loss", "eval_held/loss")}
copy = os.fork()
if copy == 0:
    signal.pause()
print(json.dumps([pids, points, copy]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # where nothing collects orphans
    except psutil.NoSuchProcess:
        return True


@pytest.mark.process
def test_one_process_writes_all_calls_of_a_program_and_ends_with_it(client: MlflowClient, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM_OF_MANY_CALLS, str(tmp_path / "model")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        [[writer], *others], points, copy = json.loads(program.stdout.readline())
        assert program.wait(HANG_SECS) == -signal.SIGKILL
        wait_until(lambda: has_ended(writer))  # though a fork of the program, which inherited the pipes, lives on
        psutil.Process(copy).kill()
    assert others == [[writer], [writer]]
    assert points == {"loss": [2, 4], "eval_held/loss": [4]}


@pytest.mark.process
def test_an_evaluation_goes_to_the_run_of_its_job_and_leaves_its_status(client: MlflowClient, tmp_path: Path) -> None:
    trained = estimator(tmp_path / "model", experiment="digits")
    with pytest.raises(ZeroDivisionError):
        run_session(trained)
    metrics = trained.evaluate(records)
    [run] = runs_of(client)
    assert run.info.status == "FAILED"
    assert metrics["global_step"] == 5
    assert (steps_of(client, run, "eval/mae"), run.data.metrics["eval/mae"]) == ([5], metrics["mae"])
    assert run.data.tags["psflow.reached_step"] == "5"
    estimator(tmp_path / "other").train(records, max_steps=5)
    estimator(tmp_path / "other", experiment="digits").evaluate(records)
    [unrecorded] = [each for each in runs_of(client) if each.info.run_id != run.info.run_id]
    job = JobFile(str(tmp_path / "other")).read()
    assert job is not None
    assert (unrecorded.info.status, unrecorded.data.tags["psflow.job_id"]) == ("FINISHED", job.job_id)
    assert unrecorded.data.metrics.keys() == {"eval/loss", "eval/mae"}


@pytest.mark.process
def test_trainings_in_two_threads_have_a_writer_each(tmp_path: Path, echoed: Any) -> None:
    both = threading.Barrier(2, timeout=HANG_SECS)

    class Meet(SessionRunHook):
        def begin(self) -> None:
            both.wait()

    def train(name: str) -> None:
        (tmp_path / name).mkdir()
        estimator(tmp_path / name / "model", experiment="digits").train(records, hooks=[Meet()], max_steps=1)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(train, ("a", "b")))
    for name in ("a", "b"):
        lines = (tmp_path / name / "recorded.jsonl").read_text().splitlines()
        assert json.loads(lines[0])["model_dir"] == str(tmp_path / name / "model")
        assert json.loads(lines[-1])[0] == "End"
    assert len(writers()) == 2


@pytest.mark.process
def test_a_writer_that_does_not_end_is_killed(
    tmp_path: Path, echoed: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recorder, "GRACE_SECS", 0.1)
    estimator(tmp_path / "model", experiment="digits").train(records, max_steps=1)
    [writer] = writers()
    writer.suspend()
    recorder.end_writers()
    assert not writer.is_running()
    assert "the process that writes to MLflow did not end within 0.1 s, and is killed" in caplog.messages


@pytest.mark.process
def test_a_writer_of_another_environment_is_not_kept(
    tmp_path: Path, echoed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = estimator(tmp_path / "model", experiment="digits")
    trained.train(records, steps=1)
    [first] = writers()
    trained.train(records, steps=1)
    assert writers() == [first]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///other.db")
    trained.train(records, steps=1)
    [second] = writers()
    assert second != first


def test_a_second_job_in_one_run_is_a_warning(
    client: MlflowClient, store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with mlflow.start_run() as active:
        mlflow.set_tag("psflow.job_id", "j0")
    run_id = active.info.run_id
    tags = {"psflow.job_id": "j1"}
    request = RecordingRequest(
        str(tmp_path), store, None, run_id, "", is_callers=True, catches_up=False, source=".", tags=tags
    )
    messages: SimpleQueue[Any] = SimpleQueue()
    messages.put((END, {"status": "FINISHED", "tags": {}, "timeout_secs": HANG_SECS}))
    answers: list[tuple[str, str]] = []
    assert _record(request, messages, lambda kind, text: answers.append((kind, text)))
    assert answers == [("opened", run_id)]
    assert [each for each in caplog.messages if f"the active MLflow run {run_id} has the job j0 already" in each]


def test_which_run_is_asked_for(client: MlflowClient, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, named = RunConfig(), RunConfig(experiment="mine")
    assert requested_run(plain) is None
    assert requested_run(named) == RunPlace(store, "mine")
    psflow.autolog()
    assert requested_run(plain) == RunPlace(store, "psflow")
    assert requested_run(named) == RunPlace(store, "mine")
    with mlflow.start_run() as active:
        assert requested_run(named) == RunPlace(store, run_id=active.info.run_id)
        psflow.autolog(disable=True)
        assert requested_run(plain) is None
        assert requested_run(named) == RunPlace(store, "mine")
    monkeypatch.delitem(sys.modules, "mlflow")
    assert requested_run(named) == RunPlace(None, "mine")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"experiment": ""}, "autolog: experiment should be the name of an MLflow experiment, got ''"),
        ({"experiment": 3}, "autolog: experiment should be a str, got int 3"),
        ({"disable": "no"}, "autolog: disable should be a bool, got str 'no'"),
    ],
)
def test_wrong_arguments_of_autolog(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        psflow.autolog(**arguments)


def test_what_is_on_disk_is_reported_as_by_the_evaluator(tmp_path: Path) -> None:
    metrics = {"loss": math.inf, "accuracy": 0.5, "global_step": 300.0}
    EvaluationLog(str(tmp_path)).add(EvaluationRecord("", 300, 1.0, metrics, 2.0))
    best = tmp_path / "export" / "best"
    best.mkdir(parents=True)
    BestRecord(300, metrics, 1, str(best / "1")).write(str(best))
    told = events_on_disk(str(tmp_path))
    evaluation, export = told
    measured = {"loss": math.inf, "accuracy": 0.5}
    assert evaluation == Evaluation(300, measured, 1.0, time=2.0)
    assert export == Export("best", 300, 1, str(best / "1"), True, measured, time=export.time)


def export_of(directory: Path, step: int, saved_at: float) -> str:
    """Write what says of which checkpoint an export was made; return its folder."""
    directory.mkdir(parents=True)
    (directory / "export.json").write_bytes(ExportRecord(step, saved_at, 0.0).to_json())
    return str(directory)


def test_exports_that_a_better_one_followed_are_reported_as_well_and_before_it(tmp_path: Path) -> None:
    log = EvaluationLog(str(tmp_path))
    log.add(EvaluationRecord("rare", 100, 1.0, {"loss": 9.0}, 2.0))
    log.add(EvaluationRecord("", 100, 1.0, {"loss": 3.0, "global_step": 100.0}, 2.0))
    log.add(EvaluationRecord("", 200, 2.0, {"loss": 2.0, "global_step": 200.0}, 3.0))
    exports = tmp_path / "export"
    first, second, latest, chosen = (
        export_of(exports / folder, step, saved_at)
        for folder, step, saved_at in [
            ("best/1", 100, 1.0),
            ("best/2", 200, 2.0),
            ("latest/1", 50, 0.5),
            ("chosen/1", 100, 1.0),
        ]
    )
    BestRecord(200, {"loss": 2.0, "global_step": 200.0}, 2, second).write(str(exports / "best"))

    told = [event for event in events_on_disk(str(tmp_path)) if isinstance(event, Export)]

    assert [
        (export.exporter, export.step, export.version, export.path, export.is_best, export.metrics) for export in told
    ] == [
        ("best", 100, 1, first, False, {"loss": 3.0}),
        ("latest", 50, 1, latest, False, {}),
        ("best", 200, 2, second, True, {"loss": 2.0}),
    ]
    assert chosen not in {export.path for export in told}  # a person has had it made, and registered or not
