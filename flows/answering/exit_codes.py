"""The exit codes of ``psflow``: all of them, in one place."""

from __future__ import annotations

import signal
from enum import IntEnum

__all__ = ["ExitCode", "exit_codes_text", "signalled"]


class ExitCode(IntEnum):
    """What a command says to whoever started it."""

    OK = 0
    FAILED = 1
    USAGE = 2
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


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "failure, or doctor found a fault",
    ExitCode.USAGE: "invalid request; nothing was started",
    ExitCode.INTERRUPTED: signalled(ExitCode.INTERRUPTED),
    ExitCode.TERMINATED: signalled(ExitCode.TERMINATED),
}


def exit_codes_text() -> str:
    """Return a line for each exit code, as help shows them."""
    return "\n".join(["\b", "Exit codes:", *(f"  {code.value:<4} {code.meaning}" for code in ExitCode)])
