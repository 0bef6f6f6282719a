"""The directory of one exporter: complete versions that appear and disappear atomically."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import fsync_directory, fsync_tree, locked, make_directory, storing
from psflow.ps_runtime.errors import LostDirectoryError

_VERSION = re.compile(r"[1-9]\d*")
_LOCK = ".lock"
_TEMPORARY = ".psflow-tmp-"
"""Prefix of directories that are not complete yet; the folder may hold other things, too."""


class ExportDirectory:
    """``model_dir/export/<exporter>``, or a folder of the user, locked by one process at a time; made by `opened`."""

    def __init__(self, path: str, root: str) -> None:
        self.path = path
        self._root = root

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str, root: str | None = None) -> Iterator[ExportDirectory]:
        """Yield the directory, created if missing, once this process has locked it; `root` is its model_dir."""
        with contextlib.ExitStack() as stack:
            with storing(path):
                make_directory(path, within=root or "")  # a model_dir that was moved away is not created again
                stack.enter_context(locked(os.path.join(path, _LOCK)))
            for name in os.listdir(path):
                if name.startswith(_TEMPORARY):  # under the lock, so its writer is dead
                    _remove(os.path.join(path, name))
            yield cls(path, path if root is None else root)

    @classmethod
    @contextlib.contextmanager
    def of_exporter(cls, files: FileStore, exporter: str) -> Iterator[ExportDirectory]:
        """Yield the directory of an exporter in a model_dir; remove a new one if the model_dir was replaced."""
        path = files.path(f"export/{exporter}")
        is_new = not os.path.isdir(path)
        with cls.opened(files.directory(f"export/{exporter}"), files.root) as directory:
            try:
                yield directory
            except LostDirectoryError:
                if is_new:
                    with contextlib.suppress(OSError):
                        os.remove(os.path.join(path, _LOCK))
                        os.rmdir(path)
                        os.rmdir(os.path.dirname(path))
                raise

    def versions(self) -> list[int]:
        """Return the existing versions, ascending."""
        return sorted(int(name) for name in os.listdir(self.path) if _VERSION.fullmatch(name))

    def version_path(self, version: int) -> str:
        """Return the path of `version`."""
        return os.path.join(self.path, str(version))

    def add(self, write: Callable[[str], None], above: int = 0) -> int:
        """Make the directory that ``write(path)`` writes the next version, durably; return the version.

        The version is greater than `above`, even if that was removed. After a failure nothing remains; StorageError if
        the disk caused it.
        """
        version = max([*self.versions(), above]) + 1
        with storing(self.version_path(version)), self._temporary() as path:
            write(path)
            fsync_tree(path)
            os.rename(path, self.version_path(version))
        fsync_directory(self.path)
        return version

    def keep(self, num_versions: int | None) -> None:
        """Remove all but the newest `num_versions` versions; None keeps all."""
        if num_versions is None:
            return
        self.remove(self.versions()[:-num_versions])

    def remove(self, versions: Iterable[int]) -> list[str]:
        """Remove some versions; return the paths of files that cannot be removed."""
        paths: list[str] = []
        for version in versions:
            with self._temporary() as path:
                os.rename(self.version_path(version), path)
                paths.append(path)
        return [path for path in paths if os.path.lexists(path)]

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[str]:
        path = os.path.join(self.path, f"{_TEMPORARY}{secrets.token_hex(4)}")
        try:
            yield path
        finally:
            _remove(path)
            self._remove_made_anew()

    def _remove_made_anew(self) -> None:
        """Remove a directory that a writer created after this one was moved away: it is the one without the lock."""
        directory = self.path
        with contextlib.suppress(OSError):
            os.rmdir(directory)
            while directory != self._root:
                directory = os.path.dirname(directory)
                os.rmdir(directory)


def _remove(path: str) -> None:
    """Remove a directory, or a file or link in its place, as far as possible."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.remove(path)
