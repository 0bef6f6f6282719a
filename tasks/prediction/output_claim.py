"""Claim on an output, which lets one prediction at a time write to it."""

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
"""Timeout for a pending renewal as the block ends; a hanging store may take minutes to answer."""


@dataclass(frozen=True, slots=True)
class _Claim:
    owner: Owner
    lease_expires: UnixTime


class OutputClaim:
    """Claims an output during a ``with`` block, as a job claims its model_dir.

    Notes
    -----
    An owner on this host is alive if its process is; one on another host until 30 s after its last renewal. In a local
    directory a lock separates concurrent starts, in a remote store a conditional write.
    """

    def __init__(self, files: FileStore, clock: Callable[[], float] = time.time) -> None:
        self._files, self._clock = files, clock
        self._me = Owner(ProcessId.current(), secrets.token_hex(8), 0.0)
        self._released = threading.Event()
        self._loss: UsageError | LostDirectoryError | None = None

    def check_free(self) -> None:
        """Raise UsageError with the owner if another prediction claims the output; changes nothing."""
        self._check_free(self._read())

    def _check_free(self, claim: _Claim | None) -> None:
        if claim is None or claim.owner.token == self._me.token or not self._is_living(claim):
            return
        since = datetime.fromtimestamp(claim.owner.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        raise UsageError(
            (
                f"the output {shown_path(self._files.url)} is being written by {claim.owner.process} since {since}; "
                "wait for its end, stop it, or choose another folder",
            )
        )

    @property
    def is_lost(self) -> bool:
        """Whether another prediction has claimed the output, or it was removed."""
        return self._loss is not None

    def check(self) -> None:
        """Raise UsageError if another prediction has claimed the output, LostDirectoryError if it was removed."""
        if self._loss is not None:
            raise self._loss

    def __enter__(self) -> Self:
        self._me = replace(self._me, since=self._clock())
        self._files.create()
        self._files.change(NAME, LOCK, self._claimed)
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
        """Renew the claim, but not after the block; UsageError if another prediction has claimed the output."""
        self._files.change(NAME, LOCK, lambda content: None if self._released.is_set() else self._claimed(content))

    def _release(self) -> None:
        with contextlib.suppress(PsflowError, OSError), self._files.locked(LOCK):  # a lease expires
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
                _log.warning("cannot renew the claim of %s, retrying: %s", shown_path(self._files.url), error)

    def _is_mine(self) -> bool:
        claim = self._read()
        return claim is not None and claim.owner.token == self._me.token

    def _is_living(self, claim: _Claim) -> bool:
        # an owner in this process may have ended before the process
        process = claim.owner.process
        is_alive = None if process == self._me.process else process.is_alive()
        return self._clock() < claim.lease_expires if is_alive is None else is_alive

    def _read(self) -> _Claim | None:
        try:
            return None if self._files.size(NAME) is None else self._decoded(self._files.read(NAME))
        except FileNotFoundError:  # released meanwhile
            return None

    def _decoded(self, content: bytes) -> _Claim:
        try:
            return as_kind(_Claim, from_json(content), "owner")
        except ValueError as error:
            raise UsageError(
                (f"{shown_path(self._files.url)}/{NAME} is damaged ({error}); remove it if no process writes there",)
            ) from None

    def _claimed(self, content: bytes | None) -> bytes:
        """Return the claim of this owner in place of `content`; UsageError if another prediction has claimed it."""
        self._check_free(None if content is None else self._decoded(content))
        return json.dumps(asdict(_Claim(self._me, self._clock() + LEASE_SECS))).encode()
