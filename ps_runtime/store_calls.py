"""Calls of a remote store: repeated while it does not answer, with errors by name."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar
from weakref import WeakSet

from fsspec.core import url_to_fs

from psflow.ps_runtime.deadline import Deadline
from psflow.ps_runtime.errors import StoreError, UsageError
from psflow.ps_runtime.redaction import shown_path, without_secrets
from psflow.ps_runtime.store_errors import is_away, remedy_of

FIRST_SECS = 10.0
"""How long calls are repeated in a process that the store has never answered: the URL may be wrong."""
ANSWER_SECS = 120.0
"""How long they are repeated once it has answered."""
PAUSE_SECS = 1.0

T = TypeVar("T")

_ANSWERS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)

_log = logging.getLogger(__name__)
_answered: WeakSet[Any] = WeakSet()


class ChangedError(Exception):
    """Another process has changed the file since it was read."""


def answer_of(fs: Any, url: str, call: Callable[[], T]) -> T:
    """Return the result of `call`; repeat it while the store does not answer.

    Raises StoreError if it refuses the call or stays away; an error about one file, such as FileNotFoundError, is
    raised unchanged.
    """
    deadline = Deadline(ANSWER_SECS if fs in _answered else FIRST_SECS)
    has_warned = False
    while True:
        try:
            found = call()
        except _ANSWERS:
            _answered.add(fs)
            raise
        except Exception as error:
            if isinstance(error, ChangedError | UsageError | StoreError):
                raise
            reason = without_secrets(str(error)) or type(error).__name__
            if not is_away(error):
                what = f"the store refused the request: {reason}"
                raise StoreError(shown_path(url), f"{what}; {remedy_of(error)}") from None
            if deadline.has_passed:
                what = f"the store did not answer, though asked again for {deadline.timeout_secs:.0f} s: {reason}"
                raise StoreError(shown_path(url), f"{what}; check its endpoint and the network") from None
            if not has_warned:
                has_warned = True
                limit = deadline.timeout_secs
                _log.warning("%s does not answer, trying again for %.0f s: %s", shown_path(url), limit, reason)
            time.sleep(PAUSE_SECS)
            continue
        _answered.add(fs)
        return found


def protocols_of(fs: Any) -> tuple[str, ...]:
    """Return the names of the protocol of a file system."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def read_answer(url: str, call: Callable[[], T]) -> T:
    """Return the result of `call`, which reads `url`: on S3 as `answer_of` does, elsewhere of one attempt."""
    fs, _ = url_to_fs(url)
    return answer_of(fs, url, call) if "s3" in protocols_of(fs) else call()


class RepeatedReads(io.RawIOBase):
    """A file on S3, open for reading, whose reads are repeated while the store does not answer."""

    def __init__(self, url: str, opened: BinaryIO) -> None:
        self._url, self._opened = url, opened

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; return it."""
        return self._opened.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._opened.tell()

    def readinto(self, buffer: Any) -> int:
        """Read bytes into `buffer`; return their number, fewer only at the end of the file."""
        place, num_bytes = self._opened.tell(), memoryview(buffer).nbytes

        def read() -> bytes:
            self._opened.seek(place)
            return self._opened.read(num_bytes)

        content = read_answer(self._url, read)
        memoryview(buffer).cast("B")[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._opened.close()
        super().close()
