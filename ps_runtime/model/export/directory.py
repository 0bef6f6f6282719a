"""The directory of one exporter: complete versions that appear and disappear atomically.

::

    model_dir/export/<exporter>/<version>/               a servable model
                                          export.json    the checkpoint that it was made of, written last
                                best.json                BestExporter's record of the best export

In a local directory a version is written under a temporary name, and renamed. A remote store cannot rename: there a
writer first claims the next version with an ``export.json`` that names the writer, by a conditional write, then sends
the files, and at last removes its name, by a conditional write again. A version with a writer is incomplete, and
readers ignore it. To give up the claim of a dead writer, a later one removes that ``export.json``; the dead one can
then never complete the version, should it wake up. A version number is never used twice.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Self

from psflow.ps_runtime.checkpoint.file_store import FileStore
from psflow.ps_runtime.checkpoint.files import (
    Fence,
    fsync_directory,
    fsync_tree,
    locked,
    make_directory,
    open_fence,
    storing,
)
from psflow.ps_runtime.checkpoint.remote_calls import check_conditional, is_in_memory
from psflow.ps_runtime.checkpoint.typed_json import UnixTime, as_kind, from_json
from psflow.ps_runtime.errors import CheckpointError, LostDirectoryError
from psflow.ps_runtime.model.best import NAME, BestRecord
from psflow.ps_runtime.redaction import shown_path
from psflow.ps_runtime.scratch import scratch_directory

RECORD = "export.json"
ABANDONED_SECS = 3600.0
"""Age at which an incomplete version in a remote store is that of a dead writer."""

_VERSION = re.compile(r"[1-9]\d*")
_LOCK = ".lock"
_TEMPORARY = ".psflow-tmp-"
"""Prefix of directories that are not complete yet; the folder may hold other things, too."""


@dataclass(frozen=True, slots=True)
class ExportRecord:
    """The content of ``export.json``: a checkpoint, and the process that still writes its export, if any."""

    step: int
    saved_at: UnixTime
    began_at: UnixTime
    writer: str | None = None

    def to_json(self) -> bytes:
        """Return the record as text."""
        return json.dumps(asdict(self)).encode() + b"\n"

    def is_of(self, step: int, saved_at: float) -> bool:
        """Return whether the export was made of this checkpoint."""
        return (self.step, self.saved_at) == (step, saved_at)


class ExportDirectory:
    """``model_dir/export/<exporter>``, or a folder of the user, a path or a URL; to change it, use `opened`.

    Notes
    -----
    A local one is locked by one process at a time; in a remote store each change is conditional.
    """

    def __init__(self, path: str, root: str | None = None, fence: Fence = open_fence) -> None:
        self.path = path
        self._root = path if root is None else root
        self._files = FileStore(path, fence)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: str, root: str | None = None, fence: Fence = open_fence) -> Iterator[Self]:
        """Yield the directory, created if missing, once this process has locked it; `root` is its model_dir.

        Raises UsageError if this is a remote store without conditional writes.
        """
        directory = cls(path, root, fence)
        if not directory._files.is_local:
            if not is_in_memory(directory._files.fs):
                check_conditional(directory._files.fs, path)
            yield directory
            return
        with contextlib.ExitStack() as stack:
            with storing(path):
                make_directory(path, within=root or "")  # a model_dir that was moved away is not created again
                stack.enter_context(locked(os.path.join(path, _LOCK)))
            for name in os.listdir(path):
                if name.startswith(_TEMPORARY):  # under the lock, so its writer is dead
                    _remove(os.path.join(path, name))
            yield directory

    @classmethod
    @contextlib.contextmanager
    def of_exporter(cls, files: FileStore, exporter: str, fence: Fence = open_fence) -> Iterator[Self]:
        """Yield the directory of an exporter in a model_dir; remove a new one if the model_dir was replaced."""
        path = files.location(f"export/{exporter}")
        is_new = files.is_local and not os.path.isdir(path)
        if files.is_local:
            files.directory(f"export/{exporter}")
        with cls.opened(path, files.root, fence) as directory:
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
        numbers = self._numbers()
        return numbers if self._files.is_local else [number for number in numbers if self.record(number) is not None]

    def version_path(self, version: int) -> str:
        """Return the path or URL of `version`."""
        return f"{self.path.rstrip('/')}/{version}"

    def record(self, version: int) -> ExportRecord | None:
        """Return the record of a complete version; None if there is none; CheckpointError if it is damaged."""
        return record_of(self.version_path(version))

    def find(self, step: int, saved_at: float, above: int = 0) -> int | None:
        """Return the newest version, greater than `above`, that was made of a checkpoint; None without one."""
        later = (number for number in reversed(self._numbers()) if number > above)
        return next((n for n in later if (found := self.record(n)) is not None and found.is_of(step, saved_at)), None)

    def add(self, write: Callable[[str], None], step: int, saved_at: float, above: int = 0) -> int:
        """Make the directory that ``write(path)`` writes, of a checkpoint, the next version, durably; return it.

        The version is greater than `above`, even if that was removed. After a failure nothing counts that was written;
        StorageError if the disk or the store caused it.
        """
        record = ExportRecord(step, saved_at, time.time())
        if not self._files.is_local:
            return self._add_remote(write, record, above)
        version = max([*self._numbers(), above]) + 1
        with storing(self.version_path(version)), self._temporary() as path:
            self._write(write, path)
            with open(os.path.join(path, RECORD), "xb") as stream:
                stream.write(record.to_json())
            fsync_tree(path)
            os.rename(path, self.version_path(version))
        fsync_directory(self.path)
        return version

    def keep(self, num_versions: int | None, best: int | None = None) -> None:
        """Remove all but `num_versions` versions: `best`, and the newest others; None keeps all."""
        if num_versions is None:
            return
        others = [version for version in self.versions() if version != best]
        num_others = num_versions - (best is not None)
        self.remove(others[: max(0, len(others) - num_others)])

    def remove(self, versions: Iterable[int]) -> list[str]:
        """Remove some versions; return the paths of files that cannot be removed."""
        if not self._files.is_local:
            for version in versions:
                self._give_up(version)
            return []
        paths: list[str] = []
        for version in versions:
            with self._temporary() as path:
                os.rename(self.version_path(version), path)
                paths.append(path)
        return [path for path in paths if os.path.lexists(path)]

    def choose(self, best: BestRecord, before: BestRecord | None) -> bool:
        """Write ``best.json``, unless it is no longer `before`; return whether it is `best` now."""
        if self._files.is_local:  # and locked
            best.write(self.path)
            return True
        is_chosen = False

        def chosen(content: bytes | None) -> bytes | None:
            nonlocal is_chosen
            known = (None if before is None else before.to_json(), best.to_json())  # the latter from a repeated write
            is_chosen = content in known
            return best.to_json() if is_chosen else None

        self._files.change(NAME, "", chosen)
        return is_chosen

    def _numbers(self) -> list[int]:
        """Return the versions, ascending, the incomplete ones of a remote store included."""
        return sorted(int(name) for name in self._files.names("") if _VERSION.fullmatch(name))

    def _write(self, write: Callable[[str], None], path: str) -> None:
        write(path)
        self._files.confirm()  # writing may take long

    def _add_remote(self, write: Callable[[str], None], record: ExportRecord, above: int) -> int:
        mine = replace(record, writer=secrets.token_hex(8)).to_json()
        with scratch_directory() as scratch:
            path = os.path.join(scratch, "export")
            with storing(path):
                self._write(write, path)
                os.listdir(path)  # an error if nothing was written
            version = self._claim(mine, above)
            self._give_up_abandoned(version, record)
            self._files.send_tree(path, str(version))
        try:
            self._complete(version, mine, record.to_json())
        except LostDirectoryError:  # perhaps to another process that has exported this checkpoint
            if (found := self.find(record.step, record.saved_at, above)) is None:
                raise
            return found
        return version

    def _claim(self, mine: bytes, above: int) -> int:
        """Return the next version, which is claimed by `mine`: no other process writes there."""
        is_mine = False

        def claimed(content: bytes | None) -> bytes | None:
            nonlocal is_mine
            is_mine = content in (None, mine)  # the latter from a repeated write
            return mine if content is None else None

        for version in itertools.count(max([*self._numbers(), above]) + 1):
            self._files.change(f"{version}/{RECORD}", "", claimed)
            if is_mine:
                return version
        raise AssertionError

    def _give_up_abandoned(self, version: int, record: ExportRecord) -> None:
        """Remove incomplete versions before `version`: those of dead writers, and of others with this checkpoint."""
        for number in self._numbers():
            found = _read(self.version_path(number)) if number < version else None
            if found is not None and found.writer is not None:
                is_same = found.is_of(record.step, record.saved_at)
                if is_same or found.began_at < record.began_at - ABANDONED_SECS:
                    self._give_up(number)

    def _give_up(self, version: int) -> None:
        self._files.remove(f"{version}/{RECORD}")  # first: from here on it cannot be complete
        self._files.remove_tree(str(version))

    def _complete(self, version: int, mine: bytes, record: bytes) -> None:
        def completed(content: bytes | None) -> bytes | None:
            if content == record:  # a repeated write
                return None
            if content != mine:
                what = "another process has removed this unfinished export: it exports the same checkpoint, or this one"
                raise LostDirectoryError(
                    shown_path(self.version_path(version)),
                    f"{what} took longer than {ABANDONED_SECS:.0f} s; run the same command again",
                )
            return record

        self._files.change(f"{version}/{RECORD}", "", completed)

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


def record_of(path: str) -> ExportRecord | None:
    """Return the record of the export at `path`, a path or a URL; None if there is none, or it is incomplete.

    Raises CheckpointError if it is damaged.
    """
    record = _read(path)
    return None if record is None or record.writer is not None else record


def is_exported(path: str) -> bool:
    """Return whether there is a complete export at `path`, a path or a URL."""
    return os.path.isdir(path) if FileStore(path).is_local else record_of(path) is not None


@contextlib.contextmanager
def local_export(path: str) -> Iterator[str]:
    """Yield a local folder with the files of an export, a path or a URL: its own, or a temporary copy.

    Raises FileNotFoundError if a remote one is missing or incomplete.
    """
    if FileStore(path).is_local:
        yield path
        return
    with scratch_directory() as scratch:
        yield copied_export(path, scratch)


def copied_export(url: str, folder: str) -> str:
    """Copy a remote export into a new folder below `folder`, and return that.

    Raises FileNotFoundError if it is missing or incomplete, or is removed meanwhile.
    """
    target = os.path.join(folder, "export")
    if record_of(url) is not None:
        FileStore(url).fetch_tree("", target)
        if record_of(url) is not None:
            return target
    raise FileNotFoundError(f"there is no complete export in {shown_path(url)}")


def _read(path: str) -> ExportRecord | None:
    files = FileStore(path)
    try:
        return as_kind(ExportRecord, from_json(files.read(RECORD)), "export")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise CheckpointError(files.location(RECORD), f"damaged: {error}; remove this export") from error


def _remove(path: str) -> None:
    """Remove a directory, or a file or link in its place, as far as possible."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.remove(path)
