"""The certificate of a cluster whose processes are started by hand: a file in the model_dir that its owner can read."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psflow.ps_runtime.checkpoint.files import atomic_write_bytes, make_directory, storing
from psflow.ps_runtime.errors import UsageError

__all__ = ["FOLDER", "kept_certificate", "read_certificate"]

FOLDER, NAME = "tls", "cluster.pem"
OF_OTHERS = 0o077
"""The rights of everybody but the owner."""


@contextmanager
def kept_certificate(model_dir: str, pem: str) -> Iterator[None]:
    """Keep a key and its certificate in ``model_dir/tls/`` for the time of a block: 0700, and 0600 the file.

    What a chief that was killed has left is replaced.

    Raises
    ------
    StorageError
        If it cannot be written.
    """
    folder = Path(model_dir, FOLDER)
    make_directory(model_dir)
    with storing(str(folder)):
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # one that was there
    file = folder / NAME
    atomic_write_bytes(str(file), pem.encode(), is_private=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # it may be somebody else's, or gone
            if file.read_text() == pem:
                file.unlink()
                folder.rmdir()


def read_certificate(model_dir: str) -> str | None:
    """Return what the chief keeps; None if there is nothing yet.

    Raises
    ------
    UsageError
        If others than its owner may read it, or this process may not.
    """
    file = Path(model_dir, FOLDER, NAME)
    try:
        mode = stat.S_IMODE(os.stat(file).st_mode)
        if mode & OF_OTHERS:
            raise UsageError((f"{file} holds a key, and others may read it (mode {mode:04o}); set its mode to 0600",))
        return file.read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError((f"{file} cannot be read: {error.strerror}; start all processes as one user",)) from None
