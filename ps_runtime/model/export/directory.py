"""The directory of one exporter: whole versions, appearing and disappearing in one instant each."""

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
"""Begins the names of directories that are not whole yet; the folder may hold other things, too."""


class ExportDirectory:
    """``model_dir/export/<exporter>``, or a folder of the user, held by one process at a time; made by `opened`."""

    def __init__(self, path: str, root: str) -> None:
        self.path = path
        self._root = root

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str, root: str | None = None) -> Iterator[ExportDirectory]:
        """Give the directory, made if missing, once no other process of this host holds it; `root` is its model_dir."""
        with contextlib.ExitStack() as stack:
            with storing(path):
                make_directory(path, within=root or "")  # a model_dir that was moved away is not made anew
                stack.enter_context(locked(os.path.join(path, _LOCK)))
            for name in os.listdir(path):
                if name.startswith(_TEMPORARY):  # nobody else is writing: its writer is dead
                    _remove(os.path.join(path, name))
            yield cls(path, path if root is None else root)

    @classmethod
    @contextlib.contextmanager
    def of_exporter(cls, files: FileStore, exporter: str) -> Iterator[ExportDirectory]:
        """Give that of an exporter in a model_dir; one made where another model_dir has taken its place is removed."""
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
        """Return the versions that are here, ascending."""
        return sorted(int(name) for name in os.listdir(self.path) if _VERSION.fullmatch(name))

    def version_path(self, version: int) -> str:
        """Return the path of `version`."""
        return os.path.join(self.path, str(version))

    def add(self, write: Callable[[str], None], above: int = 0) -> int:
        """Have ``write(path)`` make a directory; make it the next version, durably, and return that.

        `above` is a version that was here, even if somebody has removed it.
        After a failure nothing of it stays; StorageError if that is the disk's.
        """
        version = max([*self.versions(), above]) + 1
        with storing(self.version_path(version)), self._temporary() as path:
            write(path)
            fsync_tree(path)
            os.rename(path, self.version_path(version))
        fsync_directory(self.path)
        return version

    def keep(self, num_versions: int | None) -> None:
        """Remove all versions but the newest `num_versions`; None keeps all."""
        if num_versions is None:
            return
        self.remove(self.versions()[:-num_versions])

    def remove(self, versions: Iterable[int]) -> list[str]:
        """Remove some versions; return where files of them stay that cannot be removed."""
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
        """Remove what a writer has made where this directory was moved away: only there it is without the lock."""
        directory = self.path
        with contextlib.suppress(OSError):
            os.rmdir(directory)
            while directory != self._root:
                directory = os.path.dirname(directory)
                os.rmdir(directory)


def _remove(path: str) -> None:
    """Remove a directory, or a file or link that somebody has put in its place, as far as that is possible."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.remove(path)
