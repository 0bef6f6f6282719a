"""Results of commands: facts, lines for the terminal, exit codes."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a command."""

    facts: Mapping[str, Any]
    lines: Sequence[str] | None = None
    exit_code: int = 0
    has_password: bool = False


class ExitCode(IntEnum):
    """Exit codes of all commands."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM

    @property
    def meaning(self) -> str:
        """Description for help texts."""
        return MEANINGS[self]


SIGNALLED = {
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C, SIGINT)",
    ExitCode.TERMINATED: "terminated (SIGTERM)",
}


def signalled(code: ExitCode, purpose: str = "resume") -> str:
    """Return a sentence about the signal that ended a command; `purpose` says why to run it again."""
    return f"{SIGNALLED[code]}; run the same command again to {purpose}"


def recorded(*answers: Mapping[str, Any]) -> ExitCode:
    """Return the exit code of a finished command: INCOMPLETE if an MLflow run in `answers` is incomplete."""
    is_whole = all(answer["mlflow"]["complete"] for answer in answers if "mlflow" in answer)
    return ExitCode.OK if is_whole else ExitCode.INCOMPLETE


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "failure, or doctor found a fault",
    ExitCode.USAGE: "invalid request; nothing was started",
    ExitCode.INCOMPLETE: "done, but the MLflow run is incomplete; run the same command again to complete it",
    ExitCode.INTERRUPTED: signalled(ExitCode.INTERRUPTED),
    ExitCode.TERMINATED: signalled(ExitCode.TERMINATED),
}


def exit_codes_text() -> str:
    """Return the lines of all exit codes for help texts."""
    return "\n".join(["\b", "Exit codes:", *(f"  {code.value:<4} {code.meaning}" for code in ExitCode)])
