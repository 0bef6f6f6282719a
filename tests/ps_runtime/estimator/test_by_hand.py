"""Messages of the chief's process about other processes of a manual cluster."""

from __future__ import annotations

import copy
import errno
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest

from psflow import (
    Adam,
    Dataset,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    FinalExporter,
    GradientDescent,
    ReduceOnPlateau,
    RunConfig,
    Server,
    TrainSpec,
    get_variable,
    stop_if_no_decrease_hook,
    train_and_evaluate,
)
from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.records import EvaluationLog, FinishedMarker, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.estimator.manual_cluster import (
    _evaluated_end,
    _log_for_all,
    _say_without_evaluator,
    serve_manual_role,
)
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.roles.events import LogMessage, RoleLost, RoleStarted
from psflow.ps_runtime.specs.cluster_task import ClusterAddresses, ClusterTask, TaskType
from psflow.ps_runtime.specs.roles import RoleId
from tests.free_ports import free_address
from tests.limits import HANG_SECS
from tests.tasks.waiting import wait_until

WORKER = RoleId.parse("worker-1")


def no_model(features: Any) -> EstimatorSpec:
    raise AssertionError("it is refused before that")


@pytest.mark.parametrize(
    ("is_there", "words"),
    [
        (False, "worker-1 is lost: it is gone; start its process again with the same command"),
        (True, "worker-1 restarts in its process: it is gone"),
    ],
)
def test_only_a_process_that_is_gone_is_to_be_started_again(
    is_there: bool, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    def has_joined(role: RoleId) -> bool:
        assert role == WORKER
        return is_there

    _log_for_all(has_joined, RoleLost("it is gone", role="worker-1", incarnation=1))
    _log_for_all(has_joined, RoleStarted("ada", role="worker-1", incarnation=2))
    assert caplog.messages == [words]


@pytest.mark.parametrize("kind", ["ps", "worker", "evaluator"])
def test_a_model_dir_that_is_a_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    (tmp_path / "model").touch()
    task = ClusterTask(ClusterAddresses("a:1", ("b:1",), ("c:1",)), TaskType(kind), 0)
    with pytest.raises(UsageError, match=r"^model_dir .*/model: expected a directory, but .*/model is a file; choose"):
        serve_manual_role(task, str(tmp_path / "model"), 0.0, never_stop)


def test_a_model_dir_of_another_user_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: FileStore, name: str) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", self.path(name))

    (tmp_path / "job.json").touch()
    monkeypatch.setattr(FileStore, "read", refuse)
    task = ClusterTask(ClusterAddresses("a:1", ps=("c:1",)), TaskType.CHIEF, 0)
    estimator = Estimator(no_model, config=RunConfig(str(tmp_path), cluster=task))
    words = (
        rf"^model_dir {tmp_path}: {tmp_path}/job.json cannot be read: Permission denied; start all processes as the "
    )
    with pytest.raises(UsageError, match=words):
        train_and_evaluate(estimator, TrainSpec(pytest.fail), EvalSpec(pytest.fail))


def step_model(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    get_variable("w", ())
    op = GradientDescent(learning_rate=1.0).apply_gradients({"w": np.float32(-1)})
    return EstimatorSpec(mode, predictions={"y": features["x"]}, loss=np.mean(features["x"]), train_op=op)


def rows() -> Dataset:
    return Dataset({"x": np.ones(4, np.float32)}, np.ones(4, np.float32)).batch(2)


def endless_rows() -> Any:
    return rows().repeat()


class Names:
    """Writes the step of an export."""

    def write(self, directory: str, bundle: ExportBundle) -> None:
        Path(directory).mkdir()
        Path(directory, "step").write_text(str(bundle.global_step))


class Processes:
    """The processes of a manual cluster; here threads stand for them."""

    def __init__(self, model_dir: Path, max_steps: int | None = 20, **of_spec: Any) -> None:
        self.model_dir = str(model_dir)
        self.addresses = {"chief": [free_address()], "ps": [free_address()]}
        self.max_steps = max_steps
        self.of_spec = of_spec

    def run(self, kind: str, input_fn: Any = endless_rows, hooks: Any = ()) -> Any:
        target = Server(self.addresses, kind, 0).target
        config = RunConfig(self.model_dir, 1, save_checkpoints_steps=2, keep_checkpoint_max=3, cluster=target)
        spec = EvalSpec(rows, exporters=FinalExporter("final", None), start_delay_secs=0, throttle_secs=0)
        train_spec = TrainSpec(input_fn, self.max_steps, hooks=hooks)
        return train_and_evaluate(Estimator(step_model, config=config), train_spec, spec, writer=Names())

    def evaluated(self) -> list[int]:
        return [record.global_step for record in EvaluationLog(self.model_dir).read()]


@pytest.fixture
def beside() -> Iterator[Any]:
    """Give what has a function run beside the test; put the configuration of Dask back, which threads change here."""
    before = copy.deepcopy(dask.config.config)
    with ThreadPoolExecutor() as pool:
        yield pool.submit
    dask.config.config.clear()
    dask.config.config.update(before)


@pytest.mark.cluster
def test_without_an_evaluator_the_chief_evaluates_and_exports_the_final_checkpoint(
    tmp_path: Path, beside: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    processes = Processes(tmp_path)
    ps = beside(processes.run, "ps")
    reports = processes.run("chief")
    assert ps.result(HANG_SECS) == {}
    assert reports["evaluator-0"]["statistics"]["evaluated_steps"] == processes.evaluated() == [20]
    assert [path.read_text() for path in tmp_path.glob("export/final/*/step")] == ["20"]
    assert len(CheckpointStore(processes.model_dir).steps()) == 3  # the rest waits for nobody
    assert "no evaluator has joined: the chief evaluates the final checkpoint, of step 20" in caplog.messages
    assert processes.run("evaluator") == {}
    assert f"nothing is left to evaluate: the training in {tmp_path} has ended at step 20" in caplog.text


@pytest.mark.cluster
def test_an_evaluator_that_joins_during_training_evaluates_all_that_is_there(tmp_path: Path, beside: Any) -> None:
    is_there = tmp_path / "is_there"

    def slow_rows() -> Any:
        for index in range(20):
            if index == 8:
                wait_until(is_there.exists)
            yield {"x": np.ones(2, np.float32)}, np.ones(2, np.float32)

    processes = Processes(tmp_path / "job", max_steps=None)
    ps, chief = (beside(processes.run, kind, slow_rows) for kind in ("ps", "chief"))
    wait_until(lambda: CheckpointStore(processes.model_dir).latest() == 8)
    evaluator = beside(processes.run, "evaluator", slow_rows)
    wait_until(processes.evaluated)
    is_there.touch()
    assert (ps.result(HANG_SECS), evaluator.result(HANG_SECS)) == ({}, {})
    assert chief.result(HANG_SECS)["evaluator-0"]["statistics"]["evaluated_steps"] == processes.evaluated()
    assert processes.evaluated()[-1] == 20
    assert len(set(processes.evaluated())) == len(processes.evaluated()) > 1


@pytest.mark.parametrize(
    ("before", "max_steps", "evaluated", "is_over"),
    [
        (None, None, True, True),  # the training has ended while this process waited
        (FinishedMarker(4, "all"), None, True, False),  # a chief may be about to train on
        (FinishedMarker(4, "all"), 4, True, True),
        (FinishedMarker(4, "all"), 5, True, False),
        (None, None, False, False),
    ],
)
def test_a_late_evaluator_ends_only_where_nothing_is_left(
    before: FinishedMarker | None, max_steps: int | None, evaluated: bool, is_over: bool, tmp_path: Path
) -> None:
    estimator = Estimator(step_model, str(tmp_path))
    train_and_evaluate(estimator, TrainSpec(endless_rows, 4), EvalSpec(rows, name="a"))
    found = _evaluated_end(
        str(tmp_path),
        TrainSpec(endless_rows, max_steps),
        [EvalSpec(rows, name="a" if evaluated else "b")],
        before and read_finished(str(tmp_path)),
        has_waited=False,
    )
    assert (found is not None) == is_over
    waited = _evaluated_end(
        str(tmp_path),
        TrainSpec(endless_rows, max_steps),
        [EvalSpec(rows, name="a" if evaluated else "b")],
        before and read_finished(str(tmp_path)),
        has_waited=True,
    )
    assert (waited is not None) == evaluated


def test_what_reads_evaluations_is_told_without_an_evaluator(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    hook = stop_if_no_decrease_hook(Estimator(step_model, str(tmp_path)), "loss", 10)
    _say_without_evaluator(TrainSpec(rows, hooks=[hook]), [])
    words = "reads the evaluations of an evaluator, and none has joined yet: until then it"
    assert f"the early stopping of this training {words} stops nothing" in caplog.text
    assert "learning rate" not in caplog.text
    _say_without_evaluator(TrainSpec(rows), [Adam(ReduceOnPlateau(0.1)).apply_gradients({})])
    assert f"the learning rate of this training {words} does not fall" in caplog.text


@pytest.mark.parametrize("protocol", ["s3", "gs", "memory"])
def test_processes_meet_in_a_directory(protocol: str) -> None:
    task = ClusterTask(ClusterAddresses("a:1", ps=("c:1",)), TaskType.PS, 0)
    words = rf"^model_dir {protocol}://bucket/model: the processes meet in a directory; choose one on a disk that all"
    with pytest.raises(UsageError, match=words):
        serve_manual_role(task, f"{protocol}://bucket/model", 0.0, never_stop)
    with pytest.raises(UsageError, match=words):
        Server({"ps": ["c:1"], "worker": ["a:1"]}, "ps", 0).join(f"{protocol}://bucket/model")


@pytest.mark.parametrize(
    ("role", "level", "said"),
    [
        ("ps-0", logging.WARNING, ["ps-0: worker-0 did not push, and others wait"]),
        ("ps-0", logging.INFO, []),
        ("worker-0", logging.WARNING, []),
    ],
)
def test_warnings_of_a_ps_are_those_of_all(
    role: str, level: int, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    message = LogMessage(level, "psflow", "worker-0 did not push, and others wait", role=role, incarnation=1)
    _log_for_all(lambda role: True, message)
    assert caplog.messages == said
