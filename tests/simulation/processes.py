"""A life of a role as a process: it runs on a slot, tells of itself, and ends or is killed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from psflow.ps_runtime.errors import StoppedError
from psflow.ps_runtime.specs.roles import RoleId

if TYPE_CHECKING:
    from tests.simulation.wires import Trap


class Killed(Exception):  # noqa: N818  (what ends a process, not an error in it)
    """The process of the role is gone in the midst of what it does."""


class OwnError(Exception):
    """What code of the user raises; no two are the same fault."""


class Process:
    """One life of a role, from its submission on.

    What it tells, and how it has ended, reach the owner later, and in no order between the two.
    """

    def __init__(self, role: RoleId, incarnation: int, slot: str) -> None:
        self.role = role
        self.incarnation = incarnation
        self.slot = slot
        self.events: deque[str] = deque()
        self.outcome: dict[str, Any] | BaseException | None = None
        """How it has ended, if the owner has not heard of that yet."""
        self.is_running = True
        self.is_cancelled = False
        self.is_shutting_down = False
        self.has_begun = False
        self.has_outcome = False
        self.trap: Trap | None = None
        """What happens at one of its messages."""

    def __repr__(self) -> str:
        return f"{self.role}:{self.incarnation}"

    def emit(self, event: str) -> None:
        """Tell the owner."""
        self.events.append(event)

    def run(self) -> None:
        """Go on by a step: begin, work, or notice that it was cancelled. An error ends it."""
        if not self.is_running:
            return
        if self.is_cancelled:
            if self.has_begun:
                self.emit("ended")
            self.is_running = False
            self.stop()
            return
        if not self.has_begun:
            self.has_begun = True
            self.emit("started")
            self._guarded(self.begin)
        else:
            self._guarded(self.step)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except Killed:
            pass
        except AssertionError:
            raise
        except Exception as error:
            self.fail(error)

    def begin(self) -> None:
        """Do what comes first."""

    def step(self) -> None:
        """Do what comes next."""

    def stop(self) -> None:
        """Record that the process is gone, however it has ended."""

    def finish(self) -> None:
        """Come to the end."""
        self._end({})

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        self._end(error)

    def cancel(self) -> None:
        """Be cancelled: Dask says so at once, and the process ends when it looks."""
        if not self.has_outcome:
            self.outcome, self.has_outcome = StoppedError(str(self.role), "it was cancelled"), True
        self.is_cancelled = True

    def kill(self, *, is_silent: bool) -> None:
        """Be gone at once; `is_silent` if what it has told last gets lost with it."""
        self.is_running = False
        if is_silent:
            self.events.clear()
            if not self.is_cancelled:
                self.outcome = None
        self.stop()

    def _end(self, outcome: dict[str, Any] | BaseException) -> None:
        self.emit("ended")
        self.is_running = False
        if not self.has_outcome:
            self.outcome, self.has_outcome = outcome, True
        self.stop()


class Evaluator(Process):
    """Waits for the end of training."""

    def __init__(self, role: RoleId, incarnation: int, slot: str, disk: Any) -> None:
        super().__init__(role, incarnation, slot)
        self._disk = disk

    def step(self) -> None:
        if self._disk.is_over:
            self.finish()
