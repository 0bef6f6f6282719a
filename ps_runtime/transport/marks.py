"""What the owner of a large arena knows of its readers: the marks that they leave in their mailboxes.

A change and a copy of many megabytes would tear each other for ever, or wait for each other. Both go through the bytes
in the same order, so the change stays behind those who were reading when it began, and promises so; whoever comes
during the change follows it (see `reading`).
"""

from __future__ import annotations

import time

from psflow.ps_runtime.deadline import Deadline

__all__ = ["DONE", "LARGE_BYTES", "MARK", "PROMISED", "SINCE", "Marks", "copy_secs", "nap_secs"]

MARK, DONE, PROMISED, SINCE = range(4)
"""Of the reader: odd while it reads, another number each time; the bytes it has done. Of the owner: the mark that it
stays behind, and the counter of the arena when that began."""
LARGE_BYTES = 1024 * 1024
"""A copy of less is made again sooner than the owner can be asked to wait."""
_SLOW_BYTES_PER_SEC = 1e9
"""No reader that is alive copies slower, but for a moment."""
_MOMENT_SECS = 2e-3


class Marks:
    """The marks of all readers of an arena of `nbytes`: the `Readers` of its owner.

    Notes
    -----
    A reader's process can write there what it likes: nothing is taken from it but how long to wait, and that is bounded
    by the time that a copy takes.
    """

    def __init__(self, nbytes: int) -> None:
        self._timeout_secs = copy_secs(nbytes)
        self._nap_secs = nap_secs(nbytes)
        self._marks: dict[int, memoryview] = {}
        self._ahead: dict[int, int] = {}
        """The readers that the change under way stays behind, and their marks."""
        self._overdue: dict[int, int] = {}
        """What was waited for in vain."""
        self._deadline: Deadline | None = None

    def add(self, reader: int, mark: memoryview) -> None:
        """Regard `reader`, which leaves its mark there."""
        self._marks[reader] = mark

    def remove(self, reader: int) -> None:
        """Regard `reader` no more."""
        for known in (self._marks, self._ahead, self._overdue):
            known.pop(reader, None)

    def begin(self, counter: int) -> None:
        """Promise those who are reading to stay behind them, during this change and later ones."""
        self._ahead.clear()
        self._deadline = None
        for reader, mark in self._marks.items():
            number = mark[MARK]
            if not number & 1 or self._overdue.get(reader) == number:
                continue
            if mark[PROMISED] != number:
                mark[SINCE] = counter
                mark[PROMISED] = number
            self._ahead[reader] = number

    def await_past(self, stop: int) -> None:
        """Wait until those have read the bytes before `stop`; break the promise to those who take too long."""
        while self._ahead and (late := self._late(stop)):
            if self._deadline is None:
                self._deadline = Deadline(self._timeout_secs)
            if self._deadline.has_passed:
                for reader in late:
                    self._marks[reader][PROMISED] = 0
                    self._overdue[reader] = self._ahead.pop(reader)
                return
            time.sleep(self._nap_secs)

    def _late(self, stop: int) -> list[int]:
        """Return who has not read the bytes before `stop`; forget those who have ended."""
        self._ahead = {reader: number for reader, number in self._ahead.items() if self._marks[reader][MARK] == number}
        return [reader for reader in self._ahead if self._marks[reader][DONE] < stop]


def copy_secs(nbytes: int) -> float:
    """Return how long a slow copy of `nbytes` takes."""
    return _MOMENT_SECS + nbytes / _SLOW_BYTES_PER_SEC


def nap_secs(nbytes: int) -> float:
    """Return how long to sleep before looking again how far a copy of `nbytes` is: about a tenth of what it takes."""
    return min(max(50e-6, nbytes * 1e-11), 500e-6)
