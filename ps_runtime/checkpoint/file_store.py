"""Files under one directory, on a local disk or behind an fsspec URL, with one interface for both."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import BinaryIO, TypeVar

from fsspec.implementations.local import LocalFileSystem

from psflow.ps_runtime.checkpoint.files import (
    Chunk,
    Fence,
    append_line,
    fsync_directory,
    locked,
    make_directory,
    open_fence,
    replacing,
    storing,
    write_direct,
)
from psflow.ps_runtime.checkpoint.remote_calls import change_file, no_place, opened_store
from psflow.ps_runtime.errors import LostDirectoryError
from psflow.ps_runtime.scratch import scratch_directory
from psflow.ps_runtime.store_calls import answer_of

SHARED = "use a directory that all hosts see under this name, on a shared mount, or a URL such as s3://bucket/run"

T = TypeVar("T")


class FileStore:
    """The files under one directory, named by relative paths.

    Notes
    -----
    Every call blocks; thread-safe as far as the store is. Changes in a local directory are durable when the call
    returns; elsewhere durability depends on the store. A remote store is asked again while it does not answer, for at
    most two minutes; then, or if it refuses, StoreError. Directories are not made there: object stores have none.

    Only `create` makes a local directory. Writing into a missing one (removed, moved, or on the disk of another host)
    raises LostDirectoryError, and creates nothing.
    """

    def __init__(self, url: str, fence: Fence = open_fence) -> None:
        self.url = url
        self._fence = fence
        self.fs, self.root = opened_store(url)
        self.is_local = isinstance(self.fs, LocalFileSystem)

    def create(self) -> None:
        """Make the directory and its parents, if it is local and missing; only its owner may call this. Idempotent."""
        if self.is_local:
            with storing(self.root):
                make_directory(self.root)

    def path(self, name: str) -> str:
        """Return the path of `name` in its store: a path of the operating system if `is_local`."""
        return f"{self.root.rstrip('/')}/{name}"

    def location(self, name: str) -> str:
        """Return the path of `name` if the store is local, else its URL."""
        path = self.path(name)
        return path if self.is_local else str(self.fs.unstrip_protocol(path))

    def confirm(self) -> None:
        """Raise the error of the fence if this process may no longer write."""
        self._fence()

    def directory(self, name: str) -> str:
        """Return the path of the directory `name` of a local store, created if missing."""
        self._make_parent(f"{name}/.")
        return self.path(name)

    def names(self, directory: str) -> list[str]:
        """Return the sorted entries of `directory`; none if it does not exist."""
        path = self.path(directory).rstrip("/")
        try:
            found = self._asked(lambda: self.fs.ls(path, detail=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found if one.rstrip("/") != path)

    def size(self, name: str) -> int | None:
        """Return the size of the file `name` in bytes; None if it does not exist."""
        try:
            info = self._asked(lambda: self.fs.info(self.path(name)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(info["size"]) if info["type"] == "file" else None

    def read(self, name: str) -> bytes:
        """Return the content of the file `name`; FileNotFoundError if it does not exist."""
        data: bytes = self._asked(lambda: self.fs.cat_file(self.path(name)))
        return data

    def write(self, name: str, chunks: Iterable[Chunk]) -> None:
        """Write the large file `name`: it is complete, or unchanged after a failure.

        In a local directory it bypasses the page cache where possible. For a remote store it is first written to a
        temporary file of this host.
        """
        if self.is_local:
            with self.replacing(name) as stream:
                write_direct(stream.fileno(), chunks)
            return
        with scratch_directory() as directory:
            path = os.path.join(directory, "file")
            with storing(path), open(path, "xb") as stream:
                stream.writelines(chunks)
            self._fence()
            self.send(path, name)

    def put(self, name: str, data: bytes, *, is_private: bool = False, is_durable: bool = True) -> None:
        """Write the small file `name` in one piece: nothing is written until all of it is known.

        A private file in a local directory is readable only by its owner; elsewhere the store sets the permissions. A
        file that is not durable may be missing or cut short after a power failure of this host.
        """
        if self.is_local:
            with self.replacing(name, is_private=is_private, is_durable=is_durable) as stream:
                stream.write(data)
            return
        self._fence()
        self._written(lambda: self.fs.pipe_file(self.path(name), data))

    def change(
        self, name: str, lock: str, change: Callable[[bytes | None], bytes | None], *, is_private: bool = False
    ) -> None:
        """Replace the small file `name` by ``change(content)``, as one step among all processes that do so.

        `change` gets None if there is no file; if it returns None, nothing is written. In a local directory the file
        `lock` is locked, which holds among the processes of a host. A remote store writes on the condition that the
        content is still the same, among all hosts; otherwise `change` is called again. UsageError if it cannot.
        """
        if not self.is_local:
            self._fence()
            change_file(self.fs, self.url, self.path(name), change)
            return
        with self.locked(lock):
            before = None if self.size(name) is None else self.read(name)
            if (data := change(before)) is not None:
                self.put(name, data, is_private=is_private)

    @contextlib.contextmanager
    def replacing(
        self, name: str, *, is_private: bool = False, is_durable: bool = True, syncs_directory: bool = True
    ) -> Iterator[BinaryIO]:
        """Yield a file of a local directory to write to, which becomes the file `name` after the block, or never."""
        self._make_parent(name)
        path = self.path(name)
        with replacing(
            path,
            is_private=is_private,
            is_durable=is_durable,
            syncs_directory=syncs_directory,
            fence=self._fence,
        ) as stream:
            yield stream

    def send(self, path: str, name: str) -> None:
        """Copy the local file `path` to the file `name` of a remote store."""
        self._written(lambda: self.fs.put_file(path, self.path(name)))

    def send_tree(self, path: str, name: str) -> None:
        """Copy the files below the local directory `path` to the directory `name` of a remote store."""
        for directory, _, files in os.walk(path):
            for file in files:
                source = os.path.join(directory, file)
                self._fence()
                self.send(source, f"{name}/{os.path.relpath(source, path)}")

    def fetch_tree(self, name: str, path: str) -> None:
        """Copy the files of a remote store below the directory `name` to the new local directory `path`.

        Raises FileNotFoundError if a file is removed meanwhile.
        """
        above = self.path(name).rstrip("/")
        for found in self._asked(lambda: self.fs.find(above)):
            target = os.path.join(path, found[len(above) + 1 :])
            os.makedirs(os.path.dirname(target), exist_ok=True)
            self._asked(partial(self.fs.get_file, found, target))

    def mark(self, name: str) -> None:
        """Create the empty file `name`, which need not survive a power failure."""
        if self.is_local:
            self._make_parent(name)
        self._written(lambda: self.fs.pipe_file(self.path(name), b""))

    def append(self, name: str, line: bytes) -> None:
        """Append `line`, which ends in a newline, after removing a torn last line.

        Several processes may append to one file at once.
        """
        if self.is_local:
            self._make_parent(name)
            append_line(self.path(name), line, self._fence)
            return

        def appended(content: bytes | None) -> bytes:
            before = content or b""
            return before[: before.rfind(b"\n") + 1] + line

        self.change(name, "", appended)

    def remove(self, name: str) -> None:
        """Remove the file `name` if it exists."""
        try:
            self._asked(lambda: self.fs.rm_file(self.path(name)))
        except FileNotFoundError:
            return
        if self.is_local:
            fsync_directory(os.path.dirname(self.path(name)))

    def remove_tree(self, name: str) -> None:
        """Remove the directory `name` with its content, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self._asked(lambda: self.fs.rm(self.path(name), recursive=True))

    @contextlib.contextmanager
    def local_path(self, name: str) -> Iterator[str]:
        """Yield a path of the operating system for the file `name`: its own, or that of a temporary copy."""
        if self.is_local:
            yield self.path(name)
            return
        with scratch_directory() as directory:
            copy = os.path.join(directory, "copy")
            self._asked(lambda: self.fs.get_file(self.path(name), copy))
            yield copy

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold the lock `name` against all processes of this host; remote stores have no locks."""
        if not self.is_local:
            yield
            return
        self._make_parent(name)
        with contextlib.ExitStack() as stack:
            with storing(self.path(name)):
                stack.enter_context(locked(self.path(name)))
            yield

    def _asked(self, call: Callable[[], T]) -> T:
        """Return the result of a call of `fs`, without its caches, and while a remote store does not answer, later."""
        if self.is_local:
            return call()

        def uncached() -> T:
            self.fs.invalidate_cache()
            return call()

        return answer_of(self.fs, self.url, uncached)

    def _written(self, call: Callable[[], object]) -> None:
        if self.is_local:
            call()
            return
        try:
            answer_of(self.fs, self.url, call)
        except FileNotFoundError as error:
            raise no_place(self.url, error) from None

    def _make_parent(self, name: str) -> None:
        """Make the directory of the file `name`, but not that of the store itself."""
        parent = self.path(name).rpartition("/")[0]
        with storing(self.path(name)):
            if not _is_directory(self.root):
                what = f"{socket.gethostname()} has no such directory: it was removed or moved, or never existed"
                raise LostDirectoryError(self.root, f"{what}; nothing was written; move it back, or {SHARED}")
            if not os.path.isdir(parent):
                self._fence()
                make_directory(parent, within=self.root)


def _is_directory(path: str) -> bool:
    """Return whether the directory exists; PermissionError if this process may not know."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
