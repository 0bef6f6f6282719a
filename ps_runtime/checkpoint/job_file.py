"""``model_dir/job.json``: the job of a model_dir, its owner, and the facts that a resumed job needs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypedDict

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.checkpoint.typed_json import UnixTime, as_kind, from_json
from psflow.ps_runtime.errors import CheckpointError, LostDirectoryError, ModelDirError, StorageError, UsageError
from psflow.ps_runtime.redaction import shown_path

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
NAME = "job.json"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a job. `token` distinguishes owners inside one process."""

    process: ProcessId
    token: str
    since: UnixTime


class ForkFacts(TypedDict):
    """The parent job and checkpoint of a fork."""

    job_id: str
    run_id: str | None
    model_dir: str
    step: int


class Workers(TypedDict):
    """How many workers a running job may have, and how many it is to have: null until somebody scales it."""

    least: int
    most: int
    wanted: int | None


class JobFacts(TypedDict, total=False):
    """Facts that an owner of a job records for a later one."""

    attempts: int
    seed: int
    finished_step: int
    finished_reason: str
    ended_step: int | None
    completed_step: int | None
    forked_from: ForkFacts
    code_digest: str | None
    flow_runs: Mapping[str, str | None]
    workers: Workers | None


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The content of ``job.json``."""

    job_id: str
    run_id: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    owner: Owner | None = None
    lease_expires: UnixTime = 0.0
    model_dir: str | None = None

    def to_json(self) -> str:
        """Return the record as text."""
        return json.dumps({"format": FORMAT_VERSION, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: bytes | str) -> JobRecord:
        """Decode the result of `to_json`; ValueError, with the key, if it is invalid."""
        data = from_json(text)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT_VERSION:
            raise ValueError(f"expected an object of format {FORMAT_VERSION}")
        record = as_kind(cls, data, "job")
        as_kind(JobFacts, record.facts, "job.facts")
        return record


class JobFile:
    """The claim of one owner to the job of a model_dir.

    Notes
    -----
    Every call blocks, briefly. Of two owners that claim at once one is refused: a lock decides in a local directory of
    one host, a conditional write in a remote store.
    """

    def __init__(self, model_dir: str, lease_secs: float = 30.0, clock: Callable[[], float] = time.time) -> None:
        self._files = FileStore(model_dir)
        self._place = os.path.abspath(self._files.root) if self._files.is_local else model_dir
        self._lease_secs = lease_secs
        self._clock = clock
        self._me = Owner(ProcessId.current(), secrets.token_hex(8), 0.0)

    def read(self) -> JobRecord | None:
        """Return the content of the file; None without a file.

        Raises CheckpointError if the file is damaged.
        """
        return None if self._files.size(NAME) is None else self._decoded(self._files.read(NAME))

    def _decoded(self, content: bytes) -> JobRecord:
        try:
            return JobRecord.from_json(content)
        except ValueError as error:
            raise CheckpointError(
                self._files.path(NAME), f"damaged: {error}; correct it, or remove it to start a new job here"
            ) from error

    def claim(self) -> JobRecord:
        """Become the owner of a new job, or of a job whose owner left or died. Makes the model_dir.

        Raises
        ------
        ModelDirError
            If its owner is alive, or this is a copy of the job's model_dir.
        CheckpointError
            If the file is damaged.
        LostDirectoryError
            If this owner had the job before, and the job is gone.
        """
        if self._me.since and self.read() is None:  # a retried attempt must not start another job
            raise self._lost()
        self._files.create()
        me = self._me

        def claimed(content: bytes | None) -> JobRecord:
            nonlocal me
            self.check_place()
            new = JobRecord(job_id=secrets.token_hex(8), model_dir=self._place)
            record = new if content is None else self._decoded(content)
            if (refusal := self._refusal(record)) is not None:
                raise ModelDirError((refusal,))
            if record.model_dir not in (self._place, None) and not self._is_here(record.model_dir):
                _log.warning("the job was moved from %s to %s", record.model_dir, self._files.url)
            now = self._clock()
            me = replace(self._me, since=now)
            return replace(record, owner=me, lease_expires=now + self._lease_secs, model_dir=self._place)

        record = self._change(claimed)
        self._me = me  # only now: a failed write loses nothing
        return record

    def copied_from(self) -> str | None:
        """Return the model_dir that this one is a copy of: it still has the same job. None for the original.

        CheckpointError as in `read`. A model_dir that is not accessible from here counts as gone.
        """
        record = self.read()
        if record is None or record.model_dir in (self._place, None) or self._is_here(record.model_dir):
            return None
        try:
            there = JobFile(record.model_dir).read()
        except (CheckpointError, StorageError, OSError, ValueError):
            return None
        return record.model_dir if there is not None and there.job_id == record.job_id else None

    def check_place(self) -> None:
        """Raise ModelDirError if this is a copy; CheckpointError as in `read`."""
        original = self.copied_from()
        if original is not None:
            raise ModelDirError(
                (
                    f"model_dir {self._files.url} is a copy of {original}, but both would write into one MLflow run; "
                    "train the original, or a fork of it (--fork DIR)",
                )
            )

    def refusal(self) -> str | None:
        """Return why the job cannot be claimed: its owner is alive; else None. CheckpointError as in `read`."""
        record = self.read()
        return None if record is None else self._refusal(record)

    def renew(self) -> JobRecord:
        """Renew the lease; ModelDirError if the job has another owner by now, LostDirectoryError if it is gone."""
        return self._change_mine(lambda record: replace(record, lease_expires=self._clock() + self._lease_secs))

    def update(self, *, run_id: str | None = None, **facts: Any) -> JobRecord:
        """Record the MLflow run, or other facts as JSON values; raises as `renew`."""
        return self._change_mine(
            lambda record: replace(record, run_id=run_id or record.run_id, facts={**record.facts, **facts})
        )

    def want_workers(self, number: int) -> JobRecord:
        """Have the running job of another owner train with so many workers.

        UsageError if no job runs there, or if it cannot have so many.
        """
        where = shown_path(self._files.url)

        def wanted(content: bytes | None) -> JobRecord:
            record = JobRecord("") if content is None else self._decoded(content)
            workers = record.facts.get("workers")
            if workers is None or self._refusal(record) is None:
                raise UsageError((f"no job on a cluster runs in {where}",))
            least, most = workers["least"], workers["most"]
            if not least <= number <= most:
                raise UsageError((f"the job in {where} may have {least} to {most} workers, got {number}",))
            return replace(record, facts={**record.facts, "workers": {**workers, "wanted": number}})

        if self.read() is None:  # first: a lock would make the directory
            wanted(None)
        return self._change(wanted)

    def release(self) -> None:
        """Release the job for the next owner. Idempotent; does nothing if the job is gone, or has another owner."""
        with contextlib.suppress(LostDirectoryError, ModelDirError):
            self._change_mine(lambda record: replace(record, owner=None, lease_expires=0.0))

    def _is_here(self, model_dir: str) -> bool:
        """Return whether `model_dir` is this directory by another name."""
        try:
            return self._files.is_local and os.path.samefile(model_dir, self._place)
        except (OSError, ValueError):  # for example a path that no system supports
            return False

    def _is_living(self, owner: Owner, lease_expires: float) -> bool:
        if owner.token == self._me.token:
            return False
        # An owner inside this very process may be gone although the process is alive.
        is_alive = None if owner.process == self._me.process else owner.process.is_alive()
        return self._clock() < lease_expires if is_alive is None else is_alive

    def _mine(self, record: JobRecord | None) -> JobRecord:
        if record is None:
            raise self._lost()
        if record.owner is None or record.owner.token != self._me.token:
            if record.owner is None:
                why = f"its {NAME} names no owner, so another training has ended there, or the file was replaced"
                remedy = "run the same command again to resume"
            else:
                why = f"{record.owner.process} has owned it since {_utc(record.owner.since)}"
                remedy = "wait for its end, then run the same command again"
            raise ModelDirError((f"this process no longer owns model_dir {self._files.url}: {why}; {remedy}",))
        return record

    def _lost(self) -> LostDirectoryError:
        what = f"its {NAME} is gone: the model_dir was removed or moved while {self._me.process} trains there"
        remedy = "move it back, then run the same command again to resume; without it a new job starts at step 0"
        return LostDirectoryError(shown_path(self._files.url), f"{what}; {remedy}")

    def _refusal(self, record: JobRecord) -> str | None:
        owner = record.owner
        if owner is None or not self._is_living(owner, record.lease_expires):
            return None
        until = f"{_utc(owner.since)} (lease until {_utc(record.lease_expires)})"
        remedy = "wait for it to end, stop it, or choose another model_dir"
        if owner.process == self._me.process:
            remedy = "that is this process: end the session or training that it has open, or choose another model_dir"
        return f"model_dir {self._files.url} is in use by {owner.process} since {until}; {remedy}"

    def _change_mine(self, change: Callable[[JobRecord], JobRecord]) -> JobRecord:
        """Change the job, which must still be this owner's; return the new content of the file."""
        self._mine(self.read())  # first: if the job is gone, locking would create the lock again
        return self._change(
            lambda content: change(self._mine(None if content is None else self._decoded(content))),
        )

    def _change(self, change: Callable[[bytes | None], JobRecord]) -> JobRecord:
        changed: JobRecord

        def encoded(content: bytes | None) -> bytes:
            nonlocal changed
            changed = change(content)
            return changed.to_json().encode()

        self._files.change(NAME, ".job.lock", encoded, is_private=True)
        return changed


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
