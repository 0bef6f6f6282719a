"""Decides as a state machine, without a clock and without Dask, which roles have been silent for too long.

Input are the last heartbeat of each incarnation and the seconds since the last look; output are the incarnations
that have been silent for too long. Only two heartbeats of one scheduler are compared with each other. So no role
counts as silent if the scheduler answers late, if the owner was stopped itself, or if the clocks of a machine jump.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from psflow.ps_runtime.specs.roles import RoleId

Action = Literal["answer", "serve"]
"""What a hanging role does not do: its whole process is silent, or only the thread that serves."""


class RunningIncarnation(NamedTuple):
    """An incarnation of a role that has started, and has not ended."""

    role: RoleId
    incarnation: int
    slot: str
    """The address of its Dask worker."""


class Heartbeat(NamedTuple):
    """The last heartbeat of a Dask worker, as far as it concerns one incarnation."""

    at: float
    pulse: int | None


class Hang(NamedTuple):
    """An incarnation that has been silent for too long."""

    running: RunningIncarnation
    what: Action
    """The action that it did not do."""


@dataclass(slots=True)
class _Silent:
    """An incarnation, and for how many seconds it has been silent."""

    last: Heartbeat
    process_secs: float = 0.0
    thread_secs: float = 0.0

    def take(self, heartbeat: Heartbeat, secs: float) -> None:
        """Record the newest heartbeat, `secs` after the last look."""
        has_news = heartbeat.at != self.last.at
        self.process_secs = 0.0 if has_news else self.process_secs + secs
        if heartbeat.pulse is None or heartbeat.pulse != self.last.pulse:
            self.thread_secs = 0.0
        elif has_news:  # otherwise the state of the thread is unknown
            self.thread_secs += secs
        self.last = heartbeat


class Silence:
    """Decides which incarnations have been silent for too long."""

    def __init__(self) -> None:
        self._silent: dict[RunningIncarnation, _Silent] = {}

    def look(self, secs: float, heartbeats: Mapping[RunningIncarnation, Heartbeat], timeout_secs: float) -> list[Hang]:
        """Record the newest heartbeats; return the incarnations that hang, whose time starts anew."""
        self._silent = {running: silent for running, silent in self._silent.items() if running in heartbeats}
        hangs = []
        for running, heartbeat in heartbeats.items():
            if running not in self._silent:
                self._silent[running] = _Silent(heartbeat)
                continue
            silent = self._silent[running]
            silent.take(heartbeat, secs)
            if silent.process_secs >= timeout_secs:
                hangs.append(Hang(running, "answer"))
            elif silent.thread_secs >= timeout_secs:
                hangs.append(Hang(running, "serve"))
            else:
                continue
            del self._silent[running]
        return hangs
