"""What a command returns: facts, lines for people, and one of the exit codes."""

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
    """What a command says to whoever started it."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INCOMPLETE = 3
    INTERRUPTED = 128 + signal.SIGINT
    TERMINATED = 128 + signal.SIGTERM

    @property
    def meaning(self) -> str:
        """For people."""
        return MEANINGS[self]


SIGNALLED = {
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C, SIGINT)",
    ExitCode.TERMINATED: "terminated (SIGTERM)",
}


def signalled(code: ExitCode, purpose: str = "resume") -> str:
    """Return which signal has ended a command, and for what `purpose` to run it again."""
    return f"{SIGNALLED[code]}; run the same command again to {purpose}"


def recorded(*answers: Mapping[str, Any]) -> ExitCode:
    """Return the exit code of a command that is done: whether the MLflow runs that its `answers` tell of are whole."""
    is_whole = all(answer["mlflow"]["complete"] for answer in answers if "mlflow" in answer)
    return ExitCode.OK if is_whole else ExitCode.INCOMPLETE


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "failure, or doctor found a fault",
    ExitCode.USAGE: "invalid request; nothing was started",
    ExitCode.INCOMPLETE: "done, but the record in MLflow is incomplete; run the same command again to complete it",
    ExitCode.INTERRUPTED: signalled(ExitCode.INTERRUPTED),
    ExitCode.TERMINATED: signalled(ExitCode.TERMINATED),
}


def exit_codes_text() -> str:
    """Return a line for each exit code, as help shows them."""
    return "\n".join(["\b", "Exit codes:", *(f"  {code.value:<4} {code.meaning}" for code in ExitCode)])
