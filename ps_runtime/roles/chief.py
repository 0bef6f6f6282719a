"""Runs the chief: a training replica that also initializes the variables, opens the job and saves checkpoints."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import NDArray

from psflow.ps_runtime.checkpoint.records import FinishedMarker, clear_finished, read_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.client.shard_client import Connect, ShardClients
from psflow.ps_runtime.client.training import TrainingClient
from psflow.ps_runtime.errors import InputError, StoppedError
from psflow.ps_runtime.model.calls.caller import BuiltModel
from psflow.ps_runtime.model.session_start import first_values
from psflow.ps_runtime.protocol.job_state import JobState
from psflow.ps_runtime.protocol.message import Purpose
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import Restored
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.ps_runtime.roles.saver import ChiefSaver
from psflow.ps_runtime.roles.session import MonitoredSession, build_model
from psflow.ps_runtime.roles.streams import BatchReader, PrivateStream
from psflow.ps_runtime.roles.trainer import (
    ReplicaLosses,
    TrainingLoop,
    open_client,
    open_session,
    open_shards,
    sample_of,
    train,
)
from psflow.ps_runtime.roles.warm_checkpoint import write_warm_checkpoint
from psflow.ps_runtime.specs.input import InputSize


def take_up_end(model_dir: str) -> FinishedMarker | None:
    """Return the end of this attempt, if a chief has marked and saved it; remove unfinished files of a lost one.

    Call it while no process writes checkpoints. An attempt removes the marker of the previous one as it starts, so an
    existing marker is from a chief of this attempt.
    """
    store = CheckpointStore(model_dir)
    store.discard_uncommitted()
    end = read_finished(model_dir)
    if end is not None and end.final_step == store.latest():
        return end
    clear_finished(model_dir)
    return None


class SnapshotSaver(Protocol):
    """Makes the snapshots."""

    last_snapshot_at: float


class TimedSnapshots:
    """Requests a snapshot once a given time has passed since the last one.

    Notes
    -----
    Not thread-safe.
    """

    def __init__(
        self,
        saver: SnapshotSaver,
        secs: float | None,
        request: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._saver = saver
        self._secs = secs
        self._request = request
        self._clock = clock
        self._is_open = False

    def open(self) -> None:
        """Start the clock: the job is open."""
        self._is_open = True

    def look(self) -> None:
        """Request a snapshot if it is time. Blocks until ps-0 has the request, not until the snapshot is made."""
        now = self._clock()
        if self._is_open and self._secs is not None and now - self._saver.last_snapshot_at >= self._secs:
            self._saver.last_snapshot_at = now
            self._request()


logger = logging.getLogger(__name__)

RESTORE_TIMEOUT_SECS = 600.0
"""For requests of the saver: restoring, copying and writing take longer with the size of the model."""


def run_chief(
    job: JobSpec, context: RoleContext, connect_functions: Sequence[Connect], training_loop: TrainingLoop = train
) -> dict[str, Any]:
    """Train and save as the chief until the job is over; return the role's report."""
    with open_chief(job, context, connect_functions) as chief:
        training_loop(chief.session)
        return chief.finish()


@dataclass(frozen=True)
class Chief:
    """The chief of an open job: its session is to be entered, used and left, and then it is to finish."""

    session: MonitoredSession
    _job: JobSpec
    _context: RoleContext
    _client: TrainingClient
    _shards: ShardClients
    _saver: ChiefSaver
    _losses: ReplicaLosses
    _started: float = field(default_factory=time.monotonic)

    def finish(self) -> dict[str, Any]:
        """Wait for the final checkpoint, leave the job, and return the role's report. Blocks."""
        train_secs = self._train_secs()
        self._saver.join()
        self._losses.end(self.session)
        self._client.leave()
        statistics = {
            "train": _rates(self._job, self._saver.statistics, train_secs),
            "job": self._saver.statistics,
        }
        return self._context.report(self._shards.transport, self._client.statistics() | statistics)

    def _train_secs(self) -> float:
        """Return how long the attempt has trained: after a loss since its first step, else since the job was opened."""
        own_secs, first_step_at = time.monotonic() - self._started, self._context.first_step_at
        if first_step_at is None:
            return own_secs
        return max(own_secs, time.time() - first_step_at)  # clocks of two hosts may differ


@contextmanager
def open_chief(
    job: JobSpec, context: RoleContext, connect_functions: Sequence[Connect], built: BuiltModel | None = None
) -> Iterator[Chief]:
    """Give the variables their values, start saving, and open the job. Blocks.

    If an earlier incarnation of the chief has done that, continue from there while the others train. The parameters are
    those of `run_chief`, and `built`: the result of the first call of model_fn, if it is made already.
    """
    with ExitStack() as stack:
        is_over = threading.Event()

        def check_saver() -> None:
            context.check()
            if is_over.is_set():
                raise StoppedError(str(context.role), "its training thread has ended")

        saving_shards = stack.enter_context(open_shards(job, context, connect_functions, Purpose.SAVE, check_saver))
        saving = SavingClient(saving_shards, job.model, RESTORE_TIMEOUT_SECS)
        store = CheckpointStore(job.model_dir, fence=context.fence)
        saver = ChiefSaver(job, saving, context, store)
        stack.callback(saver.await_end)  # its connections are in use until then
        stack.callback(is_over.set)

        timed = TimedSnapshots(
            saver, job.config.save_checkpoints_secs, _snapshot_request(stack, job, context, connect_functions)
        )

        def check() -> None:
            context.check()
            saver.check()
            timed.look()

        shards = stack.enter_context(open_shards(job, context, connect_functions, Purpose.TRAIN, check))
        client = open_client(job, shards)
        losses = ReplicaLosses(context, job.config)
        session = open_session(job, context, client, _ChiefWork(losses, saver, timed))
        session.built = built
        state = saving.job_state()
        if state.is_open:
            last_checkpoint = _take_over(store, state)
        else:
            last_checkpoint = _give_values(job, context, saving, session, store)
        saving.open()
        chief = Chief(session, job, context, client, shards, saver, losses)
        saver.start(last_checkpoint, state)
        timed.open()
        context.watch(lambda: sample_of(session, shards))
        yield chief


def _snapshot_request(
    stack: ExitStack, job: JobSpec, context: RoleContext, connect_functions: Sequence[Connect]
) -> Callable[[], None]:
    """Return a function that requests a snapshot by its own connection, opened at the first call."""
    opened: list[SavingClient] = []

    def request() -> None:
        if not opened:
            shards = stack.enter_context(open_shards(job, context, connect_functions, Purpose.SAVE, context.check))
            opened.append(SavingClient(shards, job.model, RESTORE_TIMEOUT_SECS))
        opened[0].request_snapshot()

    return request


def _take_over(store: CheckpointStore, state: JobState) -> int:
    """Return the last checkpoint's step of a job that an earlier chief has opened, -1 without one."""
    latest = store.latest()
    snapshot = state.uncommitted
    logger.info(
        "the chief takes over a running job without a rollback; %s%s",
        "it has none yet" if latest is None else f"the last one is of step {latest}",
        "" if snapshot is None or snapshot.step == latest else f", that of step {snapshot.step} is under way",
    )
    return -1 if latest is None else latest


def _give_values(
    job: JobSpec, context: RoleContext, saving: SavingClient, session: MonitoredSession, store: CheckpointStore
) -> int:
    """Restore the latest checkpoint or initialize; return the step of the checkpoint, -1 if there is none."""
    latest = store.latest()
    if latest is not None:
        step = _restore(context, saving, store, latest)
        _warn_of_changed_reading(job, store, step)
        return step
    if session.built is None:
        reader = session.reader
        assert isinstance(reader, BatchReader | PrivateStream)
        batch = reader.first() if job.substitute_batch is None else job.substitute_batch
        if batch is None:
            raise InputError(("the input_fn for training returned no batch",))
        session.built = build_model(session.caller, batch, job.seed, job.model)
    built, tables = session.built, [table.name for table in job.model.tables]

    def prepared(values: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
        return first_values(built.spec.scaffold, values, tables)

    if job.warm_start is not None:
        first = write_warm_checkpoint(job, job.warm_start, built.initial_values, store, prepared)
        return _restore(context, saving, store, first)
    started = time.monotonic()
    saving.initialize(prepared(built.initial_values))
    if job.attempt > 1 or context.incarnation > job.first_incarnation:  # earlier training left no checkpoint
        context.emit(Restored(0, round(time.monotonic() - started, 6)))
    if job.config.saves_checkpoints:
        saving.request_snapshot()
    return -1


def _warn_of_changed_reading(job: JobSpec, store: CheckpointStore, step: int) -> None:
    """Log that the input is read from its start, because the positions in the checkpoint do not apply to it."""
    if step == job.finished_step:  # after finished training it is read from its start anyway
        return
    facts = store.manifest(step).job["input"]
    shared = {True: "is read whole by each replica", False: "is shared by the replicas"}
    before, now = facts["each_worker_reads_all"], job.input.each_worker_reads_all
    if before is not now:
        logger.warning(
            "the train input %s (each_worker_reads_all=%s), and up to step %d it was not: it is read from its start, "
            "so examples that were used are used again",
            shared[now],
            now,
            step,
        )
        return
    first = facts["positions"][0]
    size = InputSize(first["num_records"], first["rows_per_record"])
    if size != job.input.size:
        logger.warning(
            "an epoch of the train input is %s, and up to step %d it was %s: it is read from its start, so examples "
            "that were used are used again; to read on, resume with the same data, batch size and order of calls",
            job.input.size,
            step,
            size,
        )


def _restore(context: RoleContext, saving: SavingClient, store: CheckpointStore, step: int) -> int:
    started = time.monotonic()
    saving.restore(step)
    context.emit(Restored(step, round(time.monotonic() - started, 6), store.path(step)))
    return step


class _ChiefWork:
    """The work of the chief after each of its steps."""

    def __init__(self, losses: ReplicaLosses, saver: ChiefSaver, timed: TimedSnapshots) -> None:
        self._losses = losses
        self._saver = saver
        self._timed = timed

    def __call__(self, session: MonitoredSession) -> None:
        self._saver.check()
        self._losses.after_step(session)
        if self._saver.stop_reason is not None:
            session.request_stop(self._saver.stop_reason)
        self._timed.look()


def _rates(job: JobSpec, end: Mapping[str, Any], secs: float) -> dict[str, float]:
    """Return how fast the attempt was, over all incarnations of its roles; lost steps do not count."""
    num_steps = end["global_step"] - job.num_steps_before
    num_examples = end["examples"] - job.num_examples_before
    return {
        "secs": round(secs, 6),
        "steps": num_steps,
        "steps_per_sec": round(num_steps / secs, 3),
        "examples_per_sec": round(num_examples / secs, 3),
    }
