"""Saves the checkpoints of the job in a thread of the chief, and ends the job with the last one."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from psflow.ps_runtime.checkpoint.entries import ShardRecord
from psflow.ps_runtime.checkpoint.manifest import Manifest
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.records import EvaluationLog, nothing_left, write_finished
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.client.checkpoints import SavingClient
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.model.hooks.base import CheckpointSaverListener, Fetches, pick
from psflow.ps_runtime.model.spec import ModeKeys
from psflow.ps_runtime.model.training import best_steps
from psflow.ps_runtime.protocol.job_state import JobState, Snapshot
from psflow.ps_runtime.roles.context import RoleContext
from psflow.ps_runtime.roles.events import Checkpoint
from psflow.ps_runtime.roles.job_spec import JobSpec


class SavingSession:
    """A checkpoint before or after it is written."""

    def __init__(self, store: CheckpointStore, global_step: int, *, is_saved: bool) -> None:
        self.global_step = global_step
        self._store = store
        self._is_saved = is_saved

    def run(self, fetches: Fetches) -> Any:
        """Return ``global_step``, or variables of the checkpoint, in the structure of `fetches`. Blocks.

        Raises UsageError if a name is unknown, or a variable is asked for before the checkpoint is written.
        """
        if not self._is_saved:
            return pick(fetches, {"global_step": self.global_step})
        with CheckpointReader.pinned(self._store, self.global_step, "listener") as reader:
            tables = [table.name for table in reader.manifest.model.tables]
            return pick(fetches, _Saved(reader), tables)


class _Saved(Mapping[str, Any]):
    """The values of a checkpoint, read on demand."""

    def __init__(self, reader: CheckpointReader) -> None:
        self._reader = reader
        self._names = ("global_step", *(variable.name for variable in reader.manifest.model.variables))

    def __getitem__(self, name: str) -> Any:
        if name == "global_step":
            return self._reader.manifest.step
        if name not in self._names:
            raise KeyError(name)
        return self._reader.variable(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


logger = logging.getLogger(__name__)

END_SECS = 10.0
"""How long a chief that has failed waits for a listener, or for a file being committed."""


class ChiefSaver:
    """Turns snapshots into checkpoints."""

    def __init__(self, job: JobSpec, client: SavingClient, context: RoleContext, store: CheckpointStore) -> None:
        self._job = job
        self._client = client
        self._context = context
        self._store = store
        self._evaluations = EvaluationLog(job.model_dir)
        self._listeners: Sequence[CheckpointSaverListener] = job.train_spec.saving_listeners
        self._last_step = -1
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.stop_reason: str | None = None
        """Set when a listener requests the end of training."""
        self.last_snapshot_at = time.monotonic()
        self.statistics: dict[str, Any] = {}

    def start(self, last_step: int, state: JobState) -> None:
        """Start to save, or continue."""
        self._num_evaluated = len(self._evaluations.read())
        self._last_step = last_step
        if state.is_open and state.uncommitted is None and last_step >= 0:
            age_secs = time.time() - self._store.saved_at()[last_step]
            self.last_snapshot_at -= max(0.0, age_secs)  # clocks of two hosts may differ
        for listener in self._listeners:
            listener.begin()
        self._thread = threading.Thread(target=self._run, args=(state,), name="psflow-saver", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended the thread, if any did."""
        if self._error is not None:
            raise self._error

    def join(self) -> None:
        """Wait until the final checkpoint is committed and the job is finished."""
        assert self._thread is not None, "it was not started"
        while self._thread.is_alive():
            self._thread.join(timeout=0.25)
            self._context.check()
        self.check()

    def await_end(self) -> None:
        """Wait briefly for the end of the thread, if it was ever started. Idempotent."""
        if self._thread is not None:
            self._thread.join(END_SECS)

    def _run(self, state: JobState) -> None:
        try:
            if state.uncommitted is not None:
                self._take_up(state.uncommitted)
            final_step = self._count()["global_step"] if state.is_finished else self._make_snapshots()
            self._client.finish()
            session = SavingSession(self._store, final_step, is_saved=self._last_step == final_step)
            for listener in self._listeners:
                listener.end(session, final_step)
        except BaseException as error:
            self._error = error

    def _make_snapshots(self) -> int:
        """Save each snapshot up to the final one; return its step."""
        while True:
            snapshot, is_final = self._client.await_snapshot(math.inf)  # as long as training takes
            if is_final:
                self._announce_end(snapshot)
            self._save(snapshot)
            if is_final:
                return snapshot.step

    def _take_up(self, snapshot: Snapshot) -> None:
        """Complete the checkpoint of a snapshot made for an earlier incarnation of the chief, if it did not."""
        if snapshot.step == self._last_step:
            self._client.committed(snapshot.step)
            return
        self._notify_before(snapshot.step)
        self._commit(snapshot)
        self._announce(Checkpoint(snapshot.step, self._store.path(snapshot.step)))

    def _save(self, snapshot: Snapshot) -> None:
        if snapshot.step == self._last_step or not self._job.config.saves_checkpoints:
            self._client.resume(snapshot)
            return
        started = time.monotonic()
        self._notify_before(snapshot.step)
        self._client.snapshot(snapshot)
        self.last_snapshot_at = time.monotonic()
        self._commit(snapshot)
        stall_secs, secs = round(self.last_snapshot_at - started, 6), round(time.monotonic() - started, 6)
        self._announce(Checkpoint(snapshot.step, self._store.path(snapshot.step), stall_secs, secs))

    def _commit(self, snapshot: Snapshot) -> None:
        """Make a checkpoint of the copies of the shards."""
        records = [ShardRecord.from_facts(facts) for facts in self._client.write(snapshot.step)]
        self._context.check()  # after a rollback this incarnation commits nothing: others may write by then
        self._store.commit(Manifest.of(snapshot.step, self._job.model, snapshot.to_facts(), records))
        self._last_step = snapshot.step
        self._client.committed(snapshot.step)

    def _notify_before(self, step: int) -> None:
        """Notify the listeners of a checkpoint that is about to be written."""
        session = SavingSession(self._store, step, is_saved=False)
        for listener in self._listeners:
            listener.before_save(session, step)

    def _announce(self, checkpoint: Checkpoint) -> None:
        """Announce a new checkpoint, and remove old ones."""
        self._context.emit(checkpoint)
        self._collect_garbage()
        step = checkpoint.step
        session = SavingSession(self._store, step, is_saved=True)
        for listener in self._listeners:
            if listener.after_save(session, step):
                self.stop_reason = self.stop_reason or f"{type(listener).__name__} asked to stop after step {step}"

    def _collect_garbage(self) -> None:
        config = self._job.config
        needed: set[int] = set()
        if self._has_evaluator():  # every checkpoint is evaluated, however slow it is
            saved, log = self._store.saved_at().items(), self._evaluations.by_name()
            for spec in self._job.eval_specs:
                needed |= {step for step, _ in saved - log.get(spec.name or "", {}).items()}
        # read after the log, to which the evaluator adds a checkpoint once it has recorded that it is the best
        needed |= best_steps(self._job.eval_specs, self._job.model_dir)
        self._store.collect_garbage(
            config.keep_checkpoint_max, config.keep_checkpoint_every_n_hours, time.time(), protected=needed
        )

    def _has_evaluator(self) -> bool:
        """Return whether an evaluator is there, or comes certainly; ps-0 may have forgotten it, or never met it."""
        if not self._job.eval_specs or not self._job.evaluator_may_be_missing:
            return bool(self._job.eval_specs)
        return len(self._evaluations.read()) > self._num_evaluated or self._client.statistics()["is_watched"]

    def _announce_end(self, snapshot: Snapshot) -> None:
        """Mark the end before the final checkpoint exists, so that its readers know that it is final.

        Raises InputError if no replica had a batch: a job that was planned with a substitute has not seen one.
        """
        end, max_steps = self._count(), self._job.train_spec.max_steps
        if end["input_end"] and not end["stop_reason"] and not end["examples"]:
            what = f"the input_fn for {ModeKeys.TRAIN} returned no batch in any of the {self._job.num_workers + 1}"
            raise InputError((f"{what} replicas; check which part of the data each of them reads",))
        early = end["input_end"] or nothing_left(self._job.num_steps_before, max_steps)
        if early is not None and not end["stop_reason"] and max_steps is not None:
            logger.warning("%s", early)
        reason = end["stop_reason"] or early or self._job.end_reason
        write_finished(self._job.model_dir, snapshot.step, reason, self._context.fence)

    def _count(self) -> dict[str, Any]:
        """Take the last counters of the job."""
        self.statistics = self._client.statistics()["job"]
        return self.statistics
