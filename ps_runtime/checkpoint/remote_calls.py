"""Opens remote stores, and writes to them on conditions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from fsspec.core import url_to_fs

from psflow.ps_runtime.errors import StoreError, UsageError
from psflow.ps_runtime.redaction import shown_path, without_secrets
from psflow.ps_runtime.store_calls import ChangedError, answer_of, protocols_of

_CHANGED_CODES = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "412"}

_conditional: set[str] = set()
"""URLs of stores that are known to refuse a write whose condition does not hold."""
_in_memory = threading.Lock()


def opened_store(url: str) -> tuple[Any, str]:
    """Return the file system of `url`, and its path there; UsageError if its protocol is not available."""
    try:
        fs, root = url_to_fs(url)
    except ImportError as error:
        what = f"{shown_path(url)}: the package for this kind of URL is missing ({error})"
        raise UsageError((f"{what}; install it for all processes of the job: for s3:// pip install s3fs",)) from None
    except ValueError as error:
        raise UsageError((f"{shown_path(url)}: {without_secrets(str(error))}; use a local path or s3://",)) from None
    return fs, root


def read_tagged(fs: Any, path: str) -> tuple[bytes | None, str | None]:
    """Return the content of a file, and a tag for `write_tagged`; None and None without a file."""
    fs.invalidate_cache()
    try:
        tag = str(fs.info(path).get("ETag", ""))
        return bytes(fs.cat_file(path)), tag
    except FileNotFoundError:
        return None, None


def write_tagged(fs: Any, url: str, path: str, data: bytes, tag: str | None) -> None:
    """Write a file that still has `tag`, or that does not exist if that is None.

    Raises ChangedError if another process wrote it meanwhile; UsageError if the store ignores such conditions.
    """
    condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
    _put(fs, path, data, condition)
    if url in _conditional:
        return
    for never in ({"IfNoneMatch": "*"}, {"IfMatch": '"0"'}):
        try:
            _put(fs, path, data, never)
        except ChangedError:
            continue
        what = f"{shown_path(url)}: the store ignores conditional writes (If-Match, If-None-Match), without which "
        remedy = "use a store that has them, such as S3 or MinIO, or a directory on a mount that all hosts share"
        raise UsageError((f"{what}two processes could write there at once; {remedy}",))
    _conditional.add(url)


def _put(fs: Any, path: str, data: bytes, condition: dict[str, str]) -> None:
    try:
        fs.pipe_file(path, data, **condition)
    except (FileExistsError, FileNotFoundError, OSError) as error:
        response = getattr(error.__cause__, "response", None) or {}
        if response.get("Error", {}).get("Code") in _CHANGED_CODES:
            raise ChangedError from None
        raise


def check_conditional(fs: Any, url: str) -> None:
    """Raise UsageError if files of the store of `url` cannot be written conditionally by psflow."""
    if "s3" not in protocols_of(fs):
        what = (
            f"{shown_path(url)}: one process at a time may write there, which psflow ensures on s3:// and local paths"
        )
        raise UsageError((f"{what} only; use s3://, or a directory on a mount that all hosts share",))


def is_in_memory(fs: Any) -> bool:
    """Return whether the store is fsspec's ``memory://``, which exists in one process only."""
    return "memory" in protocols_of(fs)


MAX_TRIES = 20
"""How often a file is changed by others between reading and writing it, before that is an error."""


def change_file(fs: Any, url: str, path: str, change: Callable[[bytes | None], bytes | None]) -> None:
    """Replace a file by ``change(content)``, unless that is None, as one step among all processes that do so.

    `change` gets None if there is no file. It is called again if another process has changed the file meanwhile.
    """
    if is_in_memory(fs):
        with _in_memory:
            before = fs.cat_file(path) if fs.exists(path) else None
            if (data := change(before)) is not None:
                fs.pipe_file(path, data)
        return
    check_conditional(fs, url)
    for _ in range(MAX_TRIES):
        before, tag = answer_of(fs, url, lambda: read_tagged(fs, path))
        data = change(before)
        if data is None:
            return
        try:
            answer_of(fs, url, partial(write_tagged, fs, url, path, data, tag))
        except ChangedError:  # or this very write was repeated: `change` finds its own data then
            continue
        except FileNotFoundError as error:
            raise no_place(url, error) from None
        return
    what = f"other processes changed {path.rpartition('/')[2]} {MAX_TRIES} times while it was being written"
    raise StoreError(shown_path(url), f"{what}; end all but one")


def no_place(url: str, error: FileNotFoundError) -> StoreError:
    """Return the error of a write into a bucket that does not exist."""
    what = f"nothing can be written there: {error}; create the bucket, or correct the URL"
    return StoreError(shown_path(url), what)
