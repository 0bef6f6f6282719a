"""An end of several steps, all of which happen."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from psflow.ps_runtime.errors import PsflowError

__all__ = ["Ending"]

_log = logging.getLogger(__name__)


class Ending:
    """Keeps the first error of several ``with`` blocks, so that each is entered whatever the ones before raise.

    Notes
    -----
    An interruption, such as a second Ctrl-C, comes before all errors. Errors after the first one are logged.
    """

    def __init__(self, error: BaseException | None) -> None:
        self._cause = error
        self._first = error
        self._interruption: BaseException | None = None

    @property
    def is_well(self) -> bool:
        """Whether there is no error so far."""
        return self._first is None

    def check(self) -> None:
        """Raise the first error, unless it ends already with one; an interruption in any case."""
        if self._interruption is not None:
            raise self._interruption
        if self._cause is None and self._first is not None:
            raise self._first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None and not isinstance(error, Exception):
            self._interruption = self._interruption or error
        if self._first is None:
            self._first = error
        elif isinstance(error, Exception):
            speaks_for_itself = isinstance(error, OSError | PsflowError)
            text = "one more error as the job ends, %s: %s"
            _log.warning(text, type(error).__name__, error, exc_info=None if speaks_for_itself else error)
        return True
