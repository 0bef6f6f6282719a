"""A loop of the user's own in each replica of a cluster. Here threads stand for processes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import Any, cast

import dask
import numpy as np
import pytest

import psflow
from psflow import MonitoredTrainingSession, Server
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.cluster import worker_process
from psflow.ps_runtime.errors import BrokenPeerError, RoleFailedError, StoppedError, UsageError, WaitTimeoutError
from psflow.ps_runtime.estimator import manual_cluster, monitored
from psflow.ps_runtime.estimator.manual_cluster import serve_manual_role
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.specs.consistency import Consistency
from psflow.ps_runtime.specs.worker_context import WorkerContext, get_current_worker_context, within
from tests.free_ports import free_address
from tests.limits import HANG_SECS
from tests.tasks.waiting import wait_until

Loop = Callable[[MonitoredTrainingSession], Any]


def model_fn(features: Any, labels: Any, mode: str) -> psflow.EstimatorSpec:
    psflow.get_variable("w", ())
    op = psflow.GradientDescent(learning_rate=1.0).apply_gradients({"w": np.float32(-1)})
    return psflow.EstimatorSpec(mode, loss=np.mean(features), train_op=op)


def batches(num: int, value: float = 1.0) -> Callable[[], Iterator[Any]]:
    def input_fn() -> Iterator[Any]:
        for _ in range(num):
            yield np.full(2, value, np.float32), np.zeros(2)

    return input_fn


def losses_of(session: MonitoredTrainingSession) -> list[Any]:
    found = []
    while not session.should_stop():
        found.append(session.run())
    return found


def fail(session: MonitoredTrainingSession) -> None:
    session.run()
    raise ZeroDivisionError("as planned")


def go_on(session: MonitoredTrainingSession) -> None:
    while True:
        session.run(["loss", "w"])


class Processes:
    """One ps, and replicas of which the first is the chief."""

    def __init__(self, model_dir: Path, num_replicas: int) -> None:
        self.model_dir = str(model_dir)
        self.cluster = {"ps": [free_address()], "worker": [free_address() for _ in range(num_replicas)]}

    def ps(self) -> None:
        Server(self.cluster, "ps", 0).join(self.model_dir)

    def ps_that_is_lost(self, lost: Event, gone: Event) -> None:
        """Be a ps whose process ends once `lost` is set, and then one that is started again."""

        def check() -> None:
            if lost.is_set():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            serve_manual_role(Server(self.cluster, "ps", 0).target, self.model_dir, HANG_SECS, check)
        gone.set()
        self.ps()

    def replica(
        self,
        index: int,
        loop: Loop,
        input_fn: Callable[..., Any],
        consistency: Consistency | None = None,
        **options: Any,
    ) -> Any:
        target = Server(self.cluster, "worker", index).target
        consistency = psflow.Async() if consistency is None else consistency
        config = psflow.RunConfig(self.model_dir, 1, cluster=target, consistency=consistency)
        with MonitoredTrainingSession(psflow.Estimator(model_fn, config=config), input_fn, **options) as session:
            return loop(session)


@pytest.fixture
def beside() -> Iterator[Callable[..., Future[Any]]]:
    """Give what has a function run beside the test; put the configuration of Dask back, which threads change here."""
    before = copy.deepcopy(dask.config.config)
    with ThreadPoolExecutor() as pool:
        yield pool.submit
    dask.config.config.clear()
    dask.config.config.update(before)


@pytest.mark.cluster
@pytest.mark.parametrize(("consistency", "last"), [(psflow.Async(), 7), (psflow.Sync(), 4)])
def test_each_replica_makes_the_steps_of_its_own_input(
    consistency: Consistency, last: int, tmp_path: Path, beside: Callable[..., Future[Any]]
) -> None:
    processes = Processes(tmp_path, 2)
    ps = beside(processes.ps)
    options: dict[str, Any] = {"consistency": consistency, "each_worker_reads_all": True}
    worker = beside(processes.replica, 1, losses_of, batches(4, 5.0), **options)
    assert processes.replica(0, losses_of, batches(3), **options) == [1.0] * 3
    assert (worker.result(HANG_SECS), ps.result(HANG_SECS)) == ([5.0] * 4, None)
    finished = read_finished(processes.model_dir)
    assert finished is not None
    assert (finished.final_step, CheckpointStore(processes.model_dir).latest()) == (last, last)
    assert not (tmp_path / "tls").exists()


@pytest.mark.cluster
def test_a_worker_that_leaves_lets_the_others_train_on_and_the_chief_ends_training(
    tmp_path: Path, beside: Callable[..., Future[Any]]
) -> None:
    has_run = Event()

    def leave(session: MonitoredTrainingSession) -> int:
        session.run()
        has_run.set()
        return session.global_step

    def some(session: MonitoredTrainingSession) -> tuple[bool, list[Any]]:
        while session.global_step < 6 or not has_run.is_set():
            session.run()
        return session.should_stop(), session.run(["global_step", "loss"])

    processes = Processes(tmp_path, 2)
    ends = [beside(processes.ps), beside(processes.replica, 1, leave, batches(10**6))]
    should_stop, (global_step, loss) = processes.replica(0, some, batches(10**6))
    assert (should_stop, loss) == (False, 1.0)
    left_at = [end.result(HANG_SECS) for end in ends][1]
    assert 0 < left_at <= global_step
    finished = read_finished(processes.model_dir)
    assert finished is not None
    assert (finished.final_step, finished.reason) == (global_step, "its session was closed")


def runs(num: int) -> Loop:
    """Return a loop that counts its own steps, and never asks whether it should stop."""

    def loop(session: MonitoredTrainingSession) -> None:
        for _ in range(num):
            session.run()

    return loop


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("consistency", "nums", "reads_all", "last"),
    [(psflow.Async(), (3, 40, 8), True, 51), (psflow.Async(), (2, 30), False, 32), (psflow.Sync(), (3, 7), True, 7)],
)
def test_loops_that_count_their_own_steps_make_all_of_them(
    consistency: Consistency,
    nums: tuple[int, ...],
    reads_all: bool,
    last: int,
    tmp_path: Path,
    beside: Callable[..., Future[Any]],
) -> None:
    processes = Processes(tmp_path, len(nums))
    options: dict[str, Any] = {"consistency": consistency, "each_worker_reads_all": reads_all}
    ends = [beside(processes.ps)]
    for index, num in enumerate(nums[1:], 1):
        ends.append(beside(processes.replica, index, runs(num), batches(10**6), **options))
    processes.replica(0, runs(nums[0]), batches(10**6), **options)
    assert [end.result(HANG_SECS) for end in ends] == [None] * len(nums)
    finished = read_finished(processes.model_dir)
    assert finished is not None
    assert (finished.final_step, CheckpointStore(processes.model_dir).latest()) == (last, last)


@pytest.mark.cluster
@pytest.mark.parametrize("stops_at_once", [False, True])
def test_workers_end_soon_after_the_chief_has_left(
    stops_at_once: bool, tmp_path: Path, beside: Callable[..., Future[Any]]
) -> None:
    def leave(session: MonitoredTrainingSession) -> None:
        session.run()
        if stops_at_once:
            session.request_stop("enough")

    processes = Processes(tmp_path, 2)
    # where the chief has asked for the end, it comes within a loop that never asks for it, too
    others = runs(10**9) if stops_at_once else losses_of
    ends = [beside(processes.ps), beside(processes.replica, 1, others, batches(10**9))]
    processes.replica(0, leave, batches(10**9))
    for end in ends:
        end.result(HANG_SECS)
    finished = read_finished(processes.model_dir)
    assert finished is not None
    assert finished.reason == ("enough" if stops_at_once else "its session was closed")


@pytest.mark.cluster
def test_a_ps_finds_the_model_dir_that_the_chief_announces(
    tmp_path: Path, beside: Callable[..., Future[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    processes = Processes(tmp_path / "job", 1)
    ps = beside(Server(processes.cluster, "ps", 0).join)
    processes.replica(0, runs(3), batches(10**6))
    assert ps.result(HANG_SECS) is None
    folder = tmp_path / "home" / ".psflow" / "clusters"
    assert (folder.stat().st_mode & 0o777, list(folder.iterdir())) == (0o700, [])


def test_a_ps_waits_for_an_announcement_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(manual_cluster, "JOIN_TIMEOUT_SECS", 0.1)
    words = r"the chief at a:2 did not announce its model_dir .*~/.psflow/clusters has no file of this cluster; start"
    with pytest.raises(WaitTimeoutError, match=words):
        Server({"ps": ["a:1"], "chief": ["a:2"]}, "ps", 0).join()


@pytest.mark.cluster
def test_with_a_lost_ps_each_loop_goes_back_to_the_last_checkpoint_and_on(
    tmp_path: Path, beside: Callable[..., Future[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    has_begun, lost, gone, is_back = Event(), Event(), Event(), Event()

    def chief(session: MonitoredTrainingSession) -> None:  # with a ticket in its hands while it waits: no end meanwhile
        while not session.should_stop():
            if session.run("global_step") >= 5 and not lost.is_set():
                assert has_begun.wait(HANG_SECS)
                wait_until(lambda: store.latest() == 0)  # there is a checkpoint to roll back to, and none being written
                lost.set()
                assert gone.wait(HANG_SECS)
            elif gone.is_set():
                assert is_back.wait(HANG_SECS)  # else training may end before the loop of the worker has gone back

    def train_on(session: MonitoredTrainingSession) -> None:
        while not session.should_stop():
            is_gone = gone.is_set()
            session.run()
            has_begun.set()
            if is_gone:
                is_back.set()

    processes = Processes(tmp_path, 2)
    store = CheckpointStore(processes.model_dir)
    ps = beside(processes.ps_that_is_lost, lost, gone)
    worker = beside(processes.replica, 1, train_on, batches(10**6), max_steps=20)
    processes.replica(0, chief, batches(10**6), max_steps=20)
    assert (worker.exception(HANG_SECS), ps.result(HANG_SECS)) == (None, None)
    back = [text.partition(":")[0] for text in caplog.messages if "its loop waits for the next one" in text]
    assert sorted(back) == ["chief-0", "worker-0"]
    first, last = (float(read_values(CheckpointReader(store, step)).variables["w"]) for step in (0, 20))
    assert last - first == pytest.approx(20)  # each update of 1 counts once


class OneLife:
    """A session that is lost in its first step, or has no step to make."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.ends = error, list[Any]()

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.ends.append(kind)

    @property
    def has_ended(self) -> bool:
        return self.error is None

    def run(self, fetches: Any, batch: None) -> None:
        assert self.error is not None
        raise self.error


def test_a_loop_that_goes_back_when_the_others_have_ended_training_ends_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [OneLife(BrokenPeerError("ps-0", "gone")), OneLife(None)]
    nexts, seen = iter(lives), list[Any]()

    def next_session(error: Exception | None) -> Any:
        seen.append(error)
        return next(nexts)

    monkeypatch.setattr(monitored, "_opening", lambda *given: lambda: nullcontext(next_session))
    with MonitoredTrainingSession(psflow.Estimator(model_fn, tmp_path), batches(1)) as session:
        session.run()
        raise AssertionError("there was no step")
    assert seen == [None, lives[0].error]
    assert [life.ends for life in lives] == [[], [None]]


@pytest.mark.cluster
def test_an_error_in_the_loop_of_a_worker_ends_all_and_the_same_programs_resume(
    tmp_path: Path, beside: Callable[..., Future[Any]]
) -> None:
    processes = Processes(tmp_path, 2)
    ps, worker = beside(processes.ps), beside(processes.replica, 1, fail, batches(10**6))
    cause = r"worker-0 failed: ZeroDivisionError\('as planned'\)"
    with pytest.raises(RoleFailedError, match=f"^{cause}"):
        processes.replica(0, go_on, batches(10**6))
    with pytest.raises(ZeroDivisionError, match="as planned"):
        worker.result(HANG_SECS)
    with pytest.raises(StoppedError, match=rf"^ps-0 was stopped: the chief at .* ended the job: {cause}"):
        ps.result(HANG_SECS)
    ends = [beside(processes.ps), beside(processes.replica, 1, losses_of, batches(10**6), max_steps=3)]
    processes.replica(0, losses_of, batches(10**6), max_steps=3)
    assert ends[0].result(HANG_SECS) is None
    assert CheckpointStore(processes.model_dir).latest() == 3


@pytest.mark.cluster
def test_an_interrupted_loop_of_a_worker_lets_the_others_train_on_also_if_the_chief_hears_of_it_first(
    tmp_path: Path,
    beside: Callable[..., Future[Any]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_process, "POLL_SECS", 2.0)  # until the process of the worker leaves the cluster
    is_interrupted = Event()

    def interrupt(session: MonitoredTrainingSession) -> None:
        session.run()
        is_interrupted.set()
        raise KeyboardInterrupt

    def until_it_is_lost(session: MonitoredTrainingSession) -> None:
        assert is_interrupted.wait(HANG_SECS)
        while not any(text.startswith("worker-0 is lost") for text in caplog.messages):
            session.run()

    processes = Processes(tmp_path, 2)
    ps, worker = beside(processes.ps), beside(processes.replica, 1, interrupt, batches(10**6))
    processes.replica(0, until_it_is_lost, batches(10**6))
    assert isinstance(worker.exception(HANG_SECS), KeyboardInterrupt)
    assert ps.result(HANG_SECS) is None
    [lost] = [text for text in caplog.messages if text.startswith("worker-0 is lost")]
    assert re.fullmatch(r"worker-0 is lost: its Dask worker \S+ was lost; start its process again with .*", lost)
    assert read_finished(processes.model_dir) is not None


@pytest.mark.cluster
def test_an_error_in_the_loop_of_the_chief_ends_all(tmp_path: Path, beside: Callable[..., Future[Any]]) -> None:
    processes = Processes(tmp_path, 2)
    ps, worker = beside(processes.ps), beside(processes.replica, 1, go_on, batches(10**6))
    with pytest.raises(ZeroDivisionError, match="as planned"):
        processes.replica(0, fail, batches(10**6))
    for end, role in ((ps, "ps-0"), (worker, "worker-0")):
        words = rf"^{role} was stopped: the chief at .* ended the job: chief-0 failed: ZeroDivisionError\('as planned'"
        with pytest.raises(StoppedError, match=words):
            end.result(HANG_SECS)
    assert read_finished(processes.model_dir) is None


def test_the_role_of_a_worker_fn_knows_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(monitored, "run_manual_role", lambda *given: seen.append(get_current_worker_context()))
    config = psflow.RunConfig(cluster=Server({"ps": ["a:1"], "chief": ["a:2"]}, "chief", 0).target)
    estimator, task = psflow.Estimator(model_fn, tmp_path, config), cast(WorkerContext, object())
    for context in (nullcontext(), within(task)):
        words = "the job was over before it had started"
        with context, pytest.raises(StoppedError, match=words), MonitoredTrainingSession(estimator, batches(1)):
            raise AssertionError("there is no session")
    assert seen == [None, task]


@pytest.mark.parametrize(("kind", "index"), [("ps", 0), ("evaluator", 0)])
def test_who_makes_no_steps_has_no_session(kind: str, index: int, tmp_path: Path) -> None:
    task = Server({"ps": ["a:1"], "chief": ["a:2"]}, kind, index).target
    estimator = psflow.Estimator(model_fn, tmp_path, psflow.RunConfig(cluster=task))
    words = f"^MonitoredTrainingSession: this process is {kind} 0 of its cluster, which makes no steps; call Server"
    with pytest.raises(UsageError, match=words):
        MonitoredTrainingSession(estimator, batches(1))
    assert list(tmp_path.iterdir()) == []
