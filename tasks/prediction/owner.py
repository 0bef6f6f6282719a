"""Who writes into an output: one prediction at a time."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.job_file import Owner
from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.checkpoint.typed_json import UnixTime, as_kind, from_json
from psflow.ps_runtime.errors import LostDirectoryError, PsflowError, UsageError
from psflow.ps_runtime.redaction import shown_path

_log = logging.getLogger(__name__)

NAME = "_owner.json"
LOCK = ".owner.lock"
LEASE_SECS = 30.0
RENEW_SECS = 5.0
JOIN_SECS = 5.0
"""For a sign of life that is under way as the block ends; a store that hangs may take minutes to answer."""


@dataclass(frozen=True, slots=True)
class _Claim:
    owner: Owner
    lease_expires: UnixTime


class OutputClaim:
    """Holds an output for the time of a ``with`` block, as a job holds its model_dir.

    Notes
    -----
    Whether an owner of this host lives its process says; one of another host lives until 30 s after its last sign. In a
    local directory two that begin at once are kept apart by a lock; a store behind a URL has none, and the last to
    write wins there: the other notices within seconds, and stops.
    """

    def __init__(self, files: FileStore, clock: Callable[[], float] = time.time) -> None:
        self._files, self._clock = files, clock
        self._me = Owner(ProcessId.current(), secrets.token_hex(8), 0.0)
        self._released = threading.Event()
        self._loss: UsageError | LostDirectoryError | None = None

    def check_free(self) -> None:
        """Raise UsageError if somebody else holds the output, which says who; change nothing."""
        claim = self._read()
        if claim is None or claim.owner.token == self._me.token or not self._is_living(claim):
            return
        since = datetime.fromtimestamp(claim.owner.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        raise UsageError(
            (
                f"the output {shown_path(self._files.url)} is being written by {claim.owner.process} since {since}; "
                "wait for it to end, stop it, or choose another folder",
            )
        )

    @property
    def is_lost(self) -> bool:
        """Whether the output is another's by now, or gone."""
        return self._loss is not None

    def check(self) -> None:
        """Raise UsageError if the output is another's by now, LostDirectoryError if it is gone."""
        if self._loss is not None:
            raise self._loss

    def __enter__(self) -> Self:
        self._me = replace(self._me, since=self._clock())
        self._files.create()
        with self._files.locked(LOCK):
            self.check_free()
            self._write()
        self._released = threading.Event()
        self._renewer = threading.Thread(target=self._renew, args=(self._released,), name="psflow-output", daemon=True)
        self._renewer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        try:
            self._renewer.join(JOIN_SECS)
        finally:
            self._release()

    def renew(self) -> None:
        """Give a sign of life, but not after the block; UsageError if the output is another's by now."""
        with self._files.locked(LOCK):
            if self._released.is_set():
                return
            if not self._is_mine():
                self.check_free()
            self._write()

    def _release(self) -> None:
        with contextlib.suppress(PsflowError, OSError), self._files.locked(LOCK):  # a lease ends by itself
            if self._is_mine():
                self._files.remove(NAME)

    def _renew(self, released: threading.Event) -> None:
        while not released.wait(RENEW_SECS):
            try:
                self.renew()
            except (UsageError, LostDirectoryError) as error:
                self._loss = error
                return
            except (PsflowError, OSError) as error:
                _log.warning("cannot renew the claim of %s, trying again: %s", shown_path(self._files.url), error)

    def _is_mine(self) -> bool:
        claim = self._read()
        return claim is not None and claim.owner.token == self._me.token

    def _is_living(self, claim: _Claim) -> bool:
        # an owner inside this very process may be gone although the process is not
        process = claim.owner.process
        is_alive = None if process == self._me.process else process.is_alive()
        return self._clock() < claim.lease_expires if is_alive is None else is_alive

    def _read(self) -> _Claim | None:
        if self._files.size(NAME) is None:
            return None
        try:
            return as_kind(_Claim, from_json(self._files.read(NAME)), "owner")
        except FileNotFoundError:  # it was released just now
            return None
        except ValueError as error:
            raise UsageError(
                (f"{shown_path(self._files.url)}/{NAME} is damaged ({error}): remove it if nobody writes there",)
            ) from None

    def _write(self) -> None:
        claim = _Claim(self._me, self._clock() + LEASE_SECS)
        self._files.put(NAME, json.dumps(asdict(claim)).encode())
