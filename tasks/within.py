"""A question that nobody may ever answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from psflow.ps_runtime.errors import WaitTimeoutError

__all__ = ["within"]

T = TypeVar("T")


def within(timeout_secs: float, ask: Callable[[], T], who: str) -> T:
    """Return what `ask` does, which needs an answer of `who`, or raise what it raises.

    Raises
    ------
    WaitTimeoutError
        If it takes longer; its thread goes on until the answer comes, or the process ends.
    """
    answers: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="psflow-question", daemon=True)
    thread.start()
    thread.join(timeout_secs)
    if errors:
        raise errors[0]
    if not answers:
        raise WaitTimeoutError(who, "answer", timeout_secs)
    return answers[0]
