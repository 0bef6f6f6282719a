"""Writes that may fail: whether to try again, later, or never."""

from __future__ import annotations

from collections.abc import Callable

from psflow.tasks.tracking.store import FAULTS_OF_THE_REQUEST, reason_of

__all__ = ["Writes"]

MAX_ATTEMPTS = 5


class Writes:
    """Attempts writes of one writer, in order.

    Parameters
    ----------
    is_there : callable
        Whether the store answers: only then does a failure count against what is written.

    Attributes
    ----------
    num_failures : int
        Calls that failed so far, repeated ones included.
    last_error : str or None
        Why the last one of them failed; None if none did.
    """

    def __init__(self, is_there: Callable[[], bool]) -> None:
        self._is_there = is_there
        self._attempts = self.num_failures = 0
        self.last_error: str | None = None

    def attempt(self, write: Callable[[], object], give_up: Callable[[Exception], bool]) -> bool:
        """Call `write`, and `give_up` if it can never succeed; return whether there is a reason to go on at once."""
        from mlflow.exceptions import MlflowException

        try:
            write()
        except Exception as error:  # whatever it is, training goes on
            self.num_failures += 1
            self.last_error = f"{type(error).__name__}: {reason_of(error)}"
            hopeless = isinstance(error, MlflowException) and error.error_code in FAULTS_OF_THE_REQUEST
            self._attempts += 1 if hopeless or self._is_there() else 0
            if hopeless or self._attempts >= MAX_ATTEMPTS:
                self._attempts = 0
                return give_up(error)
            return False
        self._attempts = 0
        return True
