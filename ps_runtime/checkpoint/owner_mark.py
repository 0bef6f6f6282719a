"""What the owner of a directory has left there, as the processes that work for it look for it: on any host."""

from __future__ import annotations

import contextlib
import os
import pwd
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from psflow.ps_runtime.checkpoint.file_store import SHARED, FileStore
from psflow.ps_runtime.checkpoint.files import Fence, look_again
from psflow.ps_runtime.checkpoint.job_file import NAME, JobFile, Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CheckpointError, LostDirectoryError, StorageError, UsageError
from psflow.ps_runtime.redaction import shown_path

FIND_SECS = 8.0
"""For a shared file system to show to all hosts what one has written."""
CONFIRM_SECS = 2.0
"""For a file that is being replaced to be whole again, on a file system where that takes a moment."""
POLL_SECS = 0.1


class Marked(NamedTuple):
    """What a mark says: the token of an owner, and who that is, for people."""

    token: str
    whose: str


class _Found(NamedTuple):
    """What a process finds in place of a mark, how that came about while it worked, and what to do then."""

    what: str
    cause: str
    remedy: str
    is_forbidden: bool = False
    """Whether it may not look, which no other moment changes."""


@dataclass(frozen=True, slots=True)
class OwnerMark:
    """The mark of one owner, for one process.

    Notes
    -----
    `find` blocks until the mark is seen, for 8 s at most, `confirm` for 2 s; where this process may not read the file,
    both raise at once. Thread-safe.
    """

    files: FileStore
    name: str
    owner: Owner
    who: str
    read: Callable[[], Marked | None]
    check: Callable[[], None]

    def find(self) -> None:
        """Look for the mark before any work; LostDirectoryError if this host does not see it."""
        if (found := self._missing(FIND_SECS)) is not None:
            what = f"{self.owner.process} works there, but {self.who} on {ProcessId.current().host} finds {found.what}"
            remedy = found.remedy if found.is_forbidden else SHARED
            raise LostDirectoryError(shown_path(self.files.url), f"{what}; {remedy}")

    def confirm(self) -> None:
        """Look whether the mark is there still; LostDirectoryError if it was removed or moved, or is another's."""
        if (found := self._missing(CONFIRM_SECS)) is not None:
            what = f"{found.cause} while {self.owner.process} works there"
            where = f"{self.who} on {ProcessId.current().host} finds {found.what}, and writes nothing more"
            raise LostDirectoryError(shown_path(self.files.url), f"{what}: {where}; {found.remedy}")

    def after(self, fence: Fence) -> Fence:
        """Return a fence that lets through what `fence` does, as long as the mark is there."""

        def both() -> None:
            fence()
            self.confirm()

        return both

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise what `confirm` does, in place of what a block finds wrong with a file because the mark is gone."""
        try:
            yield
        except (CheckpointError, StorageError, OSError):
            try:
                self.confirm()
            except LostDirectoryError as lost:
                lost.__context__ = None  # it travels without errors of libraries, which may not
                raise
            raise

    def _missing(self, timeout_secs: float) -> _Found | None:
        deadline = Deadline(timeout_secs)
        while (found := self._found_instead()) is not None:
            if deadline.has_passed or found.is_forbidden:
                return found
            self.check()
            time.sleep(POLL_SECS)
        return None

    def _found_instead(self) -> _Found | None:
        """Return what is there in place of the mark; None if the mark is there."""
        try:
            marked = self.read()
        except PermissionError as error:
            return _forbidden(self.files, self.name, error)
        except (CheckpointError, UsageError, OSError) as error:
            return _Found(str(error), "it was damaged", "correct that, then run the same command again to resume")
        if marked is None:
            if self.files.is_local:
                look_again(self.files.path(self.name))  # for the next time
            remedy = "move it back, then run the same command again to resume"
            return _Found(f"no {self.name}", "it was removed or moved", remedy)
        if marked.token != self.owner.token:
            remedy = "put the first one back, or choose another model_dir, then run the same command again"
            return _Found(f"the {self.name} of {marked.whose}", "it was replaced", remedy)
        return None


def job_mark(model_dir: str, owner: Owner, who: str, check: Callable[[], None]) -> OwnerMark:
    """Return the mark of the owner of a job, which is in its ``job.json``; the parameters are those of `OwnerMark`."""
    job = JobFile(model_dir)

    def read() -> Marked | None:
        record = job.read()
        if record is None:
            return None
        if record.owner is None:
            return Marked("", "a job that nobody runs")
        return Marked(record.owner.token, str(record.owner.process))

    return OwnerMark(FileStore(model_dir), NAME, owner, who, read, check)


def _forbidden(files: FileStore, name: str, error: PermissionError) -> _Found:
    """Return what a process finds that may not read the file `name`, or enter a directory above it."""
    cause = "its rights were changed"
    if not files.is_local:
        return _Found(f"that it may not read {name} ({error})", cause, "give it the right to read there", True)
    place = files.path(name)
    while True:
        try:
            user = _user(os.stat(place).st_uid)
            break
        except OSError:  # a directory above it is closed
            place = os.path.dirname(place)
    what = f"{place}, which belongs to {user}, and may not read it as {_user(os.geteuid())}"
    return _Found(what, cause, f"start the processes of all roles, such as Dask workers, as {user}", True)


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:  # as in a container
        return f"user {uid}"
