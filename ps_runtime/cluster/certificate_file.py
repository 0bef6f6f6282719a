"""Keeps the certificate of a manual cluster in the model_dir, in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psflow.ps_runtime.checkpoint.files import atomic_write_bytes, make_directory, storing
from psflow.ps_runtime.cluster.own_security import is_pem
from psflow.ps_runtime.errors import PsflowError, UsageError
from psflow.ps_runtime.specs.task_facts import ClusterSpec

FOLDER, NAME, LOCK = "tls", "cluster.pem", ".lock"
OF_OTHERS = 0o077
"""The permissions of group and others."""


@contextmanager
def kept_certificate(model_dir: str, pem: str) -> Iterator[None]:
    """Keep a key and its certificate in ``model_dir/tls/`` (mode 0700, the file 0600) while the block runs.

    Files that a killed chief has left are replaced.

    Raises
    ------
    UsageError
        If another chief keeps one there, or ``tls`` is not a directory of this user.
    StorageError
        If it cannot be written.
    """
    folder = Path(model_dir, FOLDER)
    with storing(model_dir):
        make_directory(model_dir)
    _make_own(folder)
    file = folder / NAME
    try:
        with _locked_at_once(folder / LOCK):
            atomic_write_bytes(str(file), pem.encode(), is_private=True)
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # it may belong to another user, or be gone
                    if file.read_bytes() == pem.encode():
                        file.unlink()
    finally:
        with contextlib.suppress(OSError):  # the certificate of another chief stays
            folder.rmdir()


ANNOUNCED = Path("~/.psflow/clusters")
"""One file for each running cluster of this user, with its model_dir."""

logger = logging.getLogger(__name__)


@contextmanager
def announced(cluster: ClusterSpec, model_dir: str) -> Iterator[None]:
    """Let processes of this user find the model_dir of a cluster by its addresses, while the block runs."""
    file: Path | None = None
    try:
        file = _announcement(cluster)
        _make_own_home(file.parent)
        atomic_write_bytes(str(file), model_dir.encode(), is_private=True)
    except (OSError, PsflowError) as error:  # only a join without a model_dir needs it
        logger.info("cannot announce the cluster in %s: %s", ANNOUNCED, error)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if file is not None and file.read_bytes() == model_dir.encode():
                file.unlink()


def announced_model_dir(cluster: ClusterSpec) -> str | None:
    """Return the model_dir that the chief of a cluster has announced to its user on this host; None before it has.

    Raises UsageError if this user has no home directory, or may not read it.
    """
    try:
        return _announcement(cluster).read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError((f"{ANNOUNCED} cannot be read: {error.strerror}; pass the model_dir to join()",)) from None


def _announcement(cluster: ClusterSpec) -> Path:
    addresses = json.dumps(cluster.as_dict(), sort_keys=True)
    try:
        folder = ANNOUNCED.expanduser()
    except RuntimeError:  # a container may run as a user without one
        raise UsageError((f"{ANNOUNCED}: this user has no home directory; pass the model_dir to join()",)) from None
    return folder / hashlib.sha256(addresses.encode()).hexdigest()[:32]


def _make_own_home(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    _make_own(folder)


def _make_own(folder: Path) -> None:
    """Make a directory that only its owner may enter, or restrict an existing one; follow no link."""
    with storing(str(folder)), contextlib.suppress(FileExistsError):  # a path that is not a directory is refused below
        folder.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise _not_own(folder) from None
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise _not_own(folder)
        os.fchmod(descriptor, 0o700)  # an existing one
    finally:
        os.close(descriptor)


def _not_own(folder: Path) -> UsageError:
    return UsageError((f"{folder} should be a directory of this user, not a link, because it holds a key; remove it",))


@contextmanager
def _locked_at_once(file: Path) -> Iterator[None]:
    """Hold a lock on a file that exists during the block; UsageError if another process of this host holds it."""
    with storing(str(file)):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_mine = os.fstat(descriptor).st_nlink > 0  # else its holder has just removed it
        except BlockingIOError:
            is_mine = False
        if not is_mine:
            where = f"another chief of model_dir {file.parent.parent} runs on this host"
            raise UsageError((f"{where}; stop it, or choose another model_dir",))
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def read_certificate(model_dir: str) -> str | None:
    """Return the key and certificate of the chief; None if there is no file yet.

    Raises UsageError if it is none, or another user's, others than its owner may read it, or this process may not.
    """
    file = Path(model_dir, FOLDER, NAME)
    try:
        # opening a pipe would block
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as stream:
            _check_own(file, os.fstat(stream.fileno()))
            text = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise UsageError((f"{file} cannot be read: {reason}; start all processes as one user",)) from None
    if not is_pem(text):
        raise UsageError((f"{file} should hold a key and its certificate; remove it, and start the chief again",))
    return text


def _check_own(file: Path, status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise UsageError((f"{file} should be a file that the chief has written; remove it, and start the chief again",))
    if status.st_uid != os.geteuid():
        raise UsageError(
            (f"{file} is of user {status.st_uid}, and this process of {os.geteuid()}; start all processes as one user",)
        )
    if mode & OF_OTHERS:
        raise UsageError((f"{file} holds a key, but other users may read it (mode {mode:04o}); set its mode to 0600",))
