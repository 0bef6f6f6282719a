"""Writes that may fail: whether to try again, later, or never."""

from __future__ import annotations

import time
from collections.abc import Callable

from psflow.tasks.tracking.store import FAULTS_OF_THE_REQUEST, reason_of

__all__ = ["Writes"]

MAX_ATTEMPTS = 5
MIN_SILENCE_SECS = 1.0
"""What is told of: an answer usually takes milliseconds."""


class Writes:
    """Attempts writes of one writer, in order."""

    def __init__(self, takes_writes: Callable[[], bool]) -> None:
        self._takes_writes = takes_writes
        self._attempts = self.num_failures = 0
        self.last_error: str | None = None
        self._began_at: float | None = None

    def attempt(self, write: Callable[[], object], give_up: Callable[[Exception], bool]) -> bool:
        """Call `write`, and `give_up` if it can never succeed; return whether there is a reason to go on at once."""
        from mlflow.exceptions import MlflowException

        self._began_at = time.monotonic()
        try:
            write()
        except Exception as error:  # whatever it is, training goes on
            self.num_failures += 1
            self.last_error = f"{type(error).__name__}: {reason_of(error)}"
            hopeless = isinstance(error, MlflowException) and error.error_code in FAULTS_OF_THE_REQUEST
            self._attempts += 1 if hopeless or self._takes_writes() else 0
            if hopeless or self._attempts >= MAX_ATTEMPTS:
                self._attempts = 0
                return give_up(error)
            return False
        finally:
            self._began_at = None
        self._attempts = 0
        return True

    def trouble(self) -> str:
        """Return what keeps the writer from having done: for people, from any thread."""
        began_at = self._began_at
        silence = 0.0 if began_at is None else time.monotonic() - began_at
        found = [f"no answer for {silence:.0f} s"] if silence >= MIN_SILENCE_SECS else []
        found += [f"last error: {self.last_error}"] if self.last_error else []
        return ", ".join(found) or "MLflow answered each request, but too slowly to be done in time"
