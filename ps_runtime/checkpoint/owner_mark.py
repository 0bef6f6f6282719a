"""What the owner of a directory has left there, as the processes that work for it look for it: on any host."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from psflow.ps_runtime.checkpoint.file_store import SHARED
from psflow.ps_runtime.checkpoint.files import Fence
from psflow.ps_runtime.checkpoint.job_file import JobFile, Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import CheckpointError, LostDirectoryError, StorageError
from psflow.ps_runtime.redaction import shown_path

__all__ = ["OwnerMark", "job_mark"]

FIND_SECS = 8.0
"""For a shared file system to show to all hosts what one has written."""
CONFIRM_SECS = 2.0
"""For a file that is being replaced to be whole again, on a file system where that takes a moment."""
POLL_SECS = 0.1
MOVED = "move it back, then run the same command again to resume"


@dataclass(frozen=True, slots=True)
class OwnerMark:
    """The mark of one owner, for one process.

    Parameters
    ----------
    directory : str
        Path or URL.
    owner : Owner
        Who has put the mark there, and for whom this process works.
    who : str
        This process, for people.
    look : callable
        Takes the owner; returns what is there in place of its mark, None if the mark is there.
    check : callable
        Called several times a second; raises to end a wait.

    Notes
    -----
    `find` blocks until the mark is seen, for 8 s at most, `confirm` for 2 s. Thread-safe.
    """

    directory: str
    owner: Owner
    who: str
    look: Callable[[Owner], str | None]
    check: Callable[[], None]

    def find(self) -> None:
        """Look for the mark before any work; LostDirectoryError if this host does not see it."""
        if (found := self._missing(FIND_SECS)) is not None:
            what = f"{self.owner.process} works there, but {self.who} on {ProcessId.current().host} finds {found}"
            raise LostDirectoryError(shown_path(self.directory), f"{what}; {SHARED}")

    def confirm(self) -> None:
        """Look whether the mark is there still; LostDirectoryError if it was removed or moved, or is another's."""
        if (found := self._missing(CONFIRM_SECS)) is not None:
            what = f"it was removed or moved while {self.owner.process} works there, or another has taken it"
            where = f"{self.who} on {ProcessId.current().host} finds {found}, and writes nothing more"
            raise LostDirectoryError(shown_path(self.directory), f"{what}: {where}; {MOVED}")

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

    def _missing(self, timeout_secs: float) -> str | None:
        deadline = Deadline(timeout_secs)
        while (found := self.look(self.owner)) is not None:
            if deadline.has_passed:
                return found
            self.check()
            time.sleep(POLL_SECS)
        return None


def job_mark(model_dir: str, owner: Owner, who: str, check: Callable[[], None]) -> OwnerMark:
    """Return the mark of the owner of a job, which is in its ``job.json``; the parameters are those of `OwnerMark`."""
    return OwnerMark(model_dir, owner, who, JobFile(model_dir).found_instead, check)
