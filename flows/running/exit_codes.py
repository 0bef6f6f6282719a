"""The exit codes of ``psflow``: all of them, in one place."""

from __future__ import annotations

import signal
from enum import IntEnum

__all__ = ["ExitCode", "exit_codes_text"]


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


MEANINGS = {
    ExitCode.OK: "all is well",
    ExitCode.FAILED: "it failed; of doctor: something is at fault",
    ExitCode.USAGE: "what was asked for cannot be; nothing was started",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C, SIGINT); the same command resumes",
    ExitCode.TERMINATED: "terminated (SIGTERM); the same command resumes",
}


def exit_codes_text() -> str:
    """Return a line for each exit code, as help shows them."""
    return "\n".join(["\b", "Exit codes:", *(f"  {code.value:<4} {code.meaning}" for code in ExitCode)])
