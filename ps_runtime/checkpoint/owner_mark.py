"""The mark of the owner of a directory, which the processes that work for it verify on any host."""

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
"""Time for a shared file system to show new files to all hosts, in seconds."""
CONFIRM_SECS = 2.0
"""Time for a file that is being replaced to be complete again on a slow file system, in seconds."""
POLL_SECS = 0.1


class Marked(NamedTuple):
    """The content of a mark: the token of an owner, and its description for messages."""

    token: str
    whose: str


class _Found(NamedTuple):
    """The observation of a process without a valid mark, the cause if it happened during work, and the remedy."""

    what: str
    cause: str
    remedy: str
    is_forbidden: bool = False
    """Whether access is denied, so that waiting does not help."""


@dataclass(frozen=True, slots=True)
class OwnerMark:
    """The mark of one owner, for one process.

    Notes
    -----
    `find` blocks until the mark appears, for at most 8 s, `confirm` for 2 s; where this process may not read the file,
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
        """Verify the mark; LostDirectoryError if it was removed or moved, or belongs to another owner."""
        if (found := self._missing(CONFIRM_SECS)) is not None:
            what = f"{found.cause} while {self.owner.process} works there"
            where = f"{self.who} on {ProcessId.current().host} finds {found.what}, and writes nothing more"
            raise LostDirectoryError(shown_path(self.files.url), f"{what}: {where}; {found.remedy}")

    def after(self, fence: Fence) -> Fence:
        """Return `fence` combined with a check of the mark."""

        def both() -> None:
            fence()
            self.confirm()

        return both

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Raise the error of `confirm` instead of an error on a file in the block, if the mark is missing."""
        try:
            yield
        except (CheckpointError, StorageError, OSError):
            try:
                self.confirm()
            except LostDirectoryError as lost:
                lost.__context__ = None  # it is pickled without errors of libraries, which may not be picklable
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
        """Return the observation instead of the mark; None if the mark is valid."""
        try:
            marked = self.read()
        except PermissionError:
            return _forbidden(self.files, self.name)
        except (CheckpointError, UsageError, OSError) as error:
            return _Found(str(error), "it was damaged", "correct that, then run the same command again to resume")
        if marked is None:
            if self.files.is_local:
                look_again(self.files.path(self.name))  # for the next attempt
            remedy = "move it back, then run the same command again to resume"
            return _Found(f"no {self.name}", "it was removed or moved", remedy)
        if marked.token != self.owner.token:
            remedy = "put the first one back, or choose another model_dir, then run the same command again"
            return _Found(f"the {self.name} of {marked.whose}", "it was replaced", remedy)
        return None


def job_mark(model_dir: str, owner: Owner, who: str, check: Callable[[], None]) -> OwnerMark:
    """Return the mark of the owner of a job, stored in its ``job.json``; the parameters are those of `OwnerMark`."""
    job = JobFile(model_dir)

    def read() -> Marked | None:
        record = job.read()
        if record is None:
            return None
        if record.owner is None:
            return Marked("", "a job without an owner")
        return Marked(record.owner.token, str(record.owner.process))

    return OwnerMark(FileStore(model_dir), NAME, owner, who, read, check)


def _forbidden(files: FileStore, name: str) -> _Found:
    """Return the observation of a process that may not read the local file `name`, or enter a directory above it."""
    place = files.path(name)
    while True:
        try:
            user = _user(os.stat(place).st_uid)
            break
        except OSError:  # a directory above it is not accessible
            place = os.path.dirname(place)
    what = f"{place}, which belongs to {user}, and may not read it as {_user(os.geteuid())}"
    return _Found(
        what, "its permissions were changed", f"start the processes of all roles, such as Dask workers, as {user}", True
    )


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:  # such as in a container
        return f"user {uid}"
