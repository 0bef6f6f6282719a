"""Files by which a trial and the roles of its job wait for one another: so a fault hits its phase at any speed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.trials import Phase, Trial

POLL_SECS = 0.01


@dataclass(frozen=True)
class Gates:
    """Where the roles of one trial wait.

    Parameters
    ----------
    directory : Path
        For the files; it exists.
    phase : Phase
        Of the fault.
    """

    directory: Path
    phase: Phase

    @classmethod
    def of(cls, trial: Trial, directory: Path) -> Gates:
        """Return those of a trial, in a directory that it makes below `directory`."""
        gates = cls(directory / "gates", trial.phase)
        gates.directory.mkdir()
        if trial.phase is Phase.FINISH:
            gates.note_recovery()  # else training would wait, and never come to its end
        return gates

    def begin(self, role: str) -> None:
        """Record that a life of a replica computes its first gradient. Idempotent."""
        if not (path := self.directory / f"begun {role} {os.getpid()}").exists():  # its time is when it began
            path.touch()

    def begun(self, role: str) -> dict[int, float]:
        """Return the processes that have been `role`, and when each began, in Unix time."""
        found = {}
        for path in self.directory.glob(f"begun {role} *"):
            found[int(path.name.rpartition(" ")[2])] = path.stat().st_mtime
        return found

    def await_begin(self, role: str) -> None:
        """Wait until some life of a replica has begun, or its job has ended."""
        wait_until(lambda: bool(self.begun(role)) or self._ended.exists())

    @contextmanager
    def without_others(self) -> Iterator[None]:
        """Have nobody wait for a replica to begin: its job has ended before, which a model_fn cannot know."""
        self._ended.touch()
        yield
        self._ended.unlink()

    def meet(self, role: str, roles: Collection[str]) -> None:
        """Wait between two steps until the fault has happened, if that is its phase; all `roles` come here."""
        if self.phase is not Phase.IDLE or self.is_open:
            return
        (self.directory / f"met {role}").touch()
        if all((self.directory / f"met {other}").exists() for other in roles):
            self._reached.touch()
        wait_until(self._opened.exists)

    def pass_through(self, phase: Phase) -> None:
        """Wait until the fault has happened, if this is its phase."""
        if phase is self.phase and not self.is_open:
            self._reached.touch()
            wait_until(self._opened.exists)

    @property
    def is_reached(self) -> bool:
        """Whether somebody waits, or has waited."""
        return self._reached.exists()

    def open(self) -> None:
        """Let pass who waits: the fault has happened."""
        self._opened.touch()

    @property
    def is_open(self) -> bool:
        """Whether the fault has happened."""
        return self._opened.exists()

    def note_message(self) -> None:
        """Record that a message of this process was late, or repeated."""
        (self.directory / f"message {os.getpid()}").touch()

    @property
    def num_messages(self) -> int:
        """How many processes have had a message that was late, or repeated."""
        return len(list(self.directory.glob("message *")))

    def await_recovery(self) -> None:
        """Wait until the roles that the fault has hit are back: training must not be over before."""
        wait_until(self._recovered.exists)

    def note_recovery(self) -> None:
        """Let the job come to its end."""
        self._recovered.touch()

    @property
    def _reached(self) -> Path:
        return self.directory / "reached"

    @property
    def _opened(self) -> Path:
        return self.directory / "opened"

    @property
    def _ended(self) -> Path:
        return self.directory / "ended"

    @property
    def _recovered(self) -> Path:
        return self.directory / "recovered"


def wait_until(has_come: Callable[[], bool]) -> None:
    """Wait for another process. There is no limit: whoever waits ends with the cluster of its trial."""
    never = threading.Event()
    while not has_come():
        never.wait(POLL_SECS)
