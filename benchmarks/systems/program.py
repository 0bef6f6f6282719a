"""Programs as systems: child processes that print their progress."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from benchmarks.systems.base import POLL_SECS, System
from psflow.ps_runtime.config.environment import child_environment
from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import RoleFailedError, WaitTimeoutError

__all__ = ["Command", "Commands", "ProgramSystem"]

Commands = Callable[[Path], Mapping[str, "Command"]]
"""Takes a directory for files of its own; returns the command of each process, by its name."""

WARM_REPORTS = 3
END_SECS = 5.0
LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class Command:
    """The command line of a process, and what its environment must say."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


class ProgramSystem(System):
    """One or more child processes that print a line of JSON for each report: ``{"step": 300, "time": 12.5}``.

    Other lines of JSON are kept as events of that process; what it says on stderr is shown when it fails.

    Parameters
    ----------
    name : str
        Under which its figures are listed.
    commands : Commands
        Takes a directory, and returns a Command by the name of each process.
    counting : sequence of str
        Those that report how far they are. Their steps per second add up.
    first_steps : sequence of str
        Those that must have reported their first step before the system is at work.
    timeout_secs : float
        To be at work.
    """

    def __init__(
        self,
        name: str,
        commands: Commands,
        counting: Sequence[str],
        first_steps: Sequence[str] = (),
        timeout_secs: float = 120.0,
    ) -> None:
        super().__init__(name)
        self.commands = commands
        self._counting = counting
        self._first_steps = set(first_steps)
        self._timeout_secs = timeout_secs
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._readers: dict[str, threading.Thread] = {}
        self._directory = Path()
        self._resources = ExitStack()
        self.events: dict[str, list[dict[str, Any]]] = defaultdict(list)

    @property
    def roles(self) -> dict[str, int]:
        """The process of each command, by name."""
        return {name: process.pid for name, process in self._processes.items()}

    def start(self) -> None:
        """Start all processes, wait until they work, hold them."""
        self.launch()
        self.await_work(self._is_at_work, self._timeout_secs)
        self.hold()

    def launch(self) -> None:
        """Start all processes; for those that are not to be held."""
        self._directory = Path(self._resources.enter_context(TemporaryDirectory(prefix="psflow-bench-")))
        for name, command in self.commands(self._directory).items():
            with self._log(name).open("w") as log:
                process = subprocess.Popen(
                    command.arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=child_environment(command.environment),
                    process_group=0,  # Ctrl-C is for us; and the kernel ends a held group that has lost its parent
                )
            self._processes[name] = process
            assert process.stdout is not None
            reader = threading.Thread(target=self._read, args=(name, process.stdout), daemon=True)
            reader.start()
            self._readers[name] = reader

    def check(self) -> None:
        """Raise RoleFailedError if a process has ended."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None:
                raise RoleFailedError(
                    f"{name} of {self.name}", f"it ended with exit code {code}{self._last_words(name)}"
                )

    def await_event(self, name: str, key: str, timeout_secs: float) -> None:
        """Wait until process `name` has reported `key`.

        Raises
        ------
        WaitTimeoutError
            After `timeout_secs`.
        RoleFailedError
            If it ends without.
        """
        deadline = Deadline(timeout_secs)
        while not self._has_told(name, key):
            if self._processes[name].poll() is not None:
                self._readers[name].join(END_SECS)  # its last lines may be in transit
                if not self._has_told(name, key):
                    self.check()
            elif deadline.has_passed:
                raise WaitTimeoutError(self.name, f"report {key}", timeout_secs)
            else:
                time.sleep(POLL_SECS)

    def close(self) -> None:
        """Kill all processes: they hold nothing that anybody needs."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(END_SECS)
        for reader in self._readers.values():
            reader.join(END_SECS)
        self._processes, self._readers = {}, {}
        self._resources.close()

    def _read(self, name: str, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                facts = json.loads(line)
                if "step" in facts and "time" in facts:
                    self.progress.add(name, facts["step"], facts["time"])
                else:
                    self.events[name].append(facts)

    def _is_at_work(self) -> bool:
        return all(self._has_told(name, "first_step") for name in self._first_steps) and all(
            self.progress.num_reports(name) >= WARM_REPORTS for name in self._counting
        )

    def _has_told(self, name: str, key: str) -> bool:
        return any(key in event for event in list(self.events[name]))

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _last_words(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "".join(f"\n    {line}" for line in lines)
