"""Tells the errors of the libraries behind remote stores apart, without importing these libraries."""

from __future__ import annotations

import errno
import tempfile

from psflow.ps_runtime.redaction import without_secrets

_AWAY_ERRNOS = {errno.EIO, errno.EBUSY, errno.EREMOTEIO, errno.ENETUNREACH, errno.EHOSTUNREACH}
_AWAY_LIBRARIES = {
    ("aiohttp", "ClientError"),
    ("botocore", "ConnectionError"),
    ("botocore", "HTTPClientError"),
    ("botocore", "ResponseParserError"),
}
"""Errors of a connection that are no OSError."""


def reason_of_store(error: Exception) -> str | None:
    """Return the sentence and remedy of an error of the libraries behind a remote store; None for any other error."""
    if type(error).__module__.partition(".")[0] not in {library for library, _ in _AWAY_LIBRARIES}:
        return None
    remedy = "check its endpoint and the network" if is_away(error) else remedy_of(error)
    return f"{without_secrets(str(error)) or type(error).__name__}; {remedy}"


def is_away(error: Exception) -> bool:
    """Return whether the store did not answer, so that it may answer later."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError):
        return error.errno in _AWAY_ERRNOS
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__}
    return not kinds.isdisjoint(_AWAY_LIBRARIES)


def remedy_of(error: Exception) -> str:
    """Return what helps against a refusal."""
    if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
        return "check the credentials, such as AWS_ACCESS_KEY_ID, in the environment of all processes of the job"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:  # a copy on a disk of this host
        return f"free some space in {tempfile.gettempdir()}"
    return "check the URL and the settings of the store"
