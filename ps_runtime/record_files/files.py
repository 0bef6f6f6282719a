"""Data files: found by path, folder, glob or URL, and held against what they were when they were found."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from fsspec.core import has_magic, url_to_fs
from fsspec.implementations.local import LocalFileSystem

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.redaction import secret_keys, shown_path, without_secrets

__all__ = ["DataFile", "check_unchanged", "list_files", "open_file", "read_bytes", "unchanged"]

NOT_DATA = ("_", ".")
"""A file or folder below a given folder whose name begins so holds no data: markers, temporary files."""
COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip")
STAMPS = ("ETag", "etag", "LastModified", "last_modified", "updated", "mtime", "modified", "created")
"""What file systems of fsspec call the state of a file, the most exact first."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as it was when it was found.

    Parameters
    ----------
    url : str
        An absolute local path, or a URL of fsspec. People read `shown` instead.
    size : int
        In bytes.
    stamp : str
        Changes when the file does: its time of change in ns if it is local, else an ETag or the like.
    """

    url: str = field(repr=False)
    size: int
    stamp: str

    @property
    def shown(self) -> str:
        """The path as people read it."""
        return shown_path(self.url)


def list_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], suffixes: Sequence[str]
) -> tuple[DataFile, ...]:
    """Return the files that some paths stand for.

    Parameters
    ----------
    paths : path or sequence of paths
        Each a file, a folder, a glob, or a URL of fsspec of one of these. A folder stands for all files below it whose
        names end with one of `suffixes`, ordered by path; names that begin with ``_`` or ``.`` are no data. A glob
        stands for all files that it matches, and for those below folders that it matches. What exists under a name
        with the characters of a glob is no glob.
    suffixes : sequence of str
        How the names of files in a folder end: ``(".csv",)``.

    Returns
    -------
    tuple of DataFile
        In the order of `paths`. Links are files of their own.

    Raises
    ------
    InputError
        If a path stands for no file, a file cannot be read, is empty or compressed, or is there twice, or a URL holds
        a credential. All faulty paths are reported together.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise InputError(("no files are given: expected a file, a folder, a glob or a list of these",))
    found: dict[str, DataFile] = {}
    faults = []
    for path in given:
        try:
            for file in _files_of(os.fspath(path), tuple(suffixes)):
                if file.url in found:
                    faults.append(f"{file.shown} is there twice: expected each file once")
                found[file.url] = file
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(tuple(faults))
    return tuple(found.values())


def check_unchanged(file: DataFile) -> None:
    """Raise InputError if a file is not the one that was found: another size or stamp, or gone."""
    with _readable(file.url):
        fs, path = url_to_fs(file.url)
        now = _data_file(fs, path, file.url)
    if now != file:
        what = f"its size was {file.size}, now {now.size} bytes" if now.size != file.size else "it was written again"
        raise InputError((f"{file.shown} has changed since it was scanned: {what}; scan the input again",))


@contextmanager
def unchanged(file: DataFile) -> Iterator[None]:
    """Check a file before and after something is read of it, so that nothing of another file is taken for its own.

    Raises
    ------
    InputError
        As `check_unchanged`; it replaces an error of the block.
    """
    check_unchanged(file)
    try:
        yield
    finally:
        check_unchanged(file)


def open_file(file: DataFile) -> BinaryIO:
    """Return a file, open for reading at any place.

    Raises
    ------
    InputError
        If it cannot be opened.
    """
    with _readable(file.url):
        fs, path = url_to_fs(file.url)
        opened: BinaryIO = fs.open(path, "rb")
    return opened


def read_bytes(file: DataFile, opened: BinaryIO, start: int, stop: int) -> bytes:
    """Return the bytes ``[start, stop)`` of an open file.

    Raises
    ------
    InputError
        If it cannot be read, or ends before.
    """
    with _readable(file.url):
        opened.seek(start)
        content = opened.read(stop - start)
    if len(content) != stop - start:
        raise InputError(
            (f"{file.shown} ends at byte {start + len(content)}, expected {stop}: it changed while it was read",)
        )
    return content


@contextmanager
def _readable(url: str) -> Iterator[None]:
    """Turn what a file system raises into an InputError."""
    try:
        yield
    except FileNotFoundError:
        raise InputError((f"there is no file {shown_path(url)}",)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError((f"cannot read {shown_path(url)}: {reason}",)) from None
    except (ImportError, ValueError) as error:  # a protocol that fsspec, or this environment, does not have
        raise InputError((f"cannot read {shown_path(url)}: {without_secrets(str(error))}",)) from None


def _files_of(given: str, suffixes: tuple[str, ...]) -> list[DataFile]:
    """Return what one path stands for, in order."""
    if secret_keys({"url": given}):
        fault = "the URL holds a credential, and a record index keeps URLs; leave it to the environment of the process"
        raise InputError((f"{shown_path(given)}: {fault}",))
    url = given if "://" in given else os.path.abspath(os.path.expanduser(given))
    with _readable(url):
        fs, path = url_to_fs(url)
        if fs.exists(path):
            places = _below(fs, path, suffixes, url) if fs.isdir(path) else [path]
        elif has_magic(path):
            places = _matching(fs, path, suffixes, url)
        else:
            raise FileNotFoundError(url)
        return [_data_file(fs, place, _url_of(fs, place, path, url)) for place in places]


def _below(fs: Any, folder: str, suffixes: tuple[str, ...], url: str) -> list[str]:
    """Return the data files below a folder."""
    places = []
    for path in sorted(fs.find(folder, withdirs=False)):
        parts = path[len(folder) :].strip("/").split("/")
        if any(part.startswith(NOT_DATA) for part in parts):
            continue
        name = parts[-1]
        if name.endswith(suffixes) or (name.endswith(COMPRESSED) and os.path.splitext(name)[0].endswith(suffixes)):
            places.append(path)
    if not places:
        raise InputError((f"{shown_path(url)} has no files that end with {' or '.join(suffixes)}",))
    if isinstance(fs, LocalFileSystem):
        _check_no_loop(folder, places)
    return places


def _matching(fs: Any, pattern: str, suffixes: tuple[str, ...], url: str) -> list[str]:
    """Return the files that a glob matches, and those below folders that it matches."""
    places: list[str] = []
    for path, info in sorted(fs.glob(pattern, detail=True).items()):
        if os.path.basename(path.rstrip("/")).startswith(NOT_DATA):
            continue
        places += _below(fs, path, suffixes, path) if info["type"] == "directory" else [path]
    if not places:
        raise InputError((f"nothing matches {shown_path(url)}",))
    return list(dict.fromkeys(places))  # ** matches a folder, and what is in it


def _check_no_loop(root: str, places: list[str]) -> None:
    """Refuse links by which a folder holds itself: its files would count once for each turn."""
    for folder in {os.path.dirname(place) for place in places}:
        above: dict[str, str] = {}
        while len(folder) >= len(root):
            real = os.path.realpath(folder)
            if real in above:
                raise InputError((f"{above[real]} is a link to {folder}, which holds it; remove the link",))
            above[real] = folder
            folder = os.path.dirname(folder)


def _url_of(fs: Any, place: str, given_path: str, given_url: str) -> str:
    """Return the URL of a file that was found below `given_url`, with its protocol, host and so on."""
    if isinstance(fs, LocalFileSystem):
        return place
    root = given_url.rstrip("/")
    if not root.endswith(given_path):
        return str(fs.unstrip_protocol(place))
    return root[: len(root) - len(given_path)] + place


def _data_file(fs: Any, path: str, url: str) -> DataFile:
    """Return a file as it is now.

    Raises
    ------
    InputError
        If it is none that can be data.
    """
    shown = shown_path(url)
    if isinstance(fs, LocalFileSystem):
        found = os.stat(path)
        if not modes.S_ISREG(found.st_mode):
            raise InputError((f"{shown} is no file",))
        size, stamp = found.st_size, str(found.st_mtime_ns)
        if not os.access(path, os.R_OK):
            raise PermissionError(13, "Permission denied", path)
    else:
        fs.invalidate_cache(fs._parent(path))  # which would tell how the file was
        info = fs.info(path)
        if info["size"] is None:
            raise InputError((f"{shown}: the server does not tell its size; copy it to a file system that does",))
        size = int(info["size"])
        stamp = next((str(info[name]) for name in STAMPS if info.get(name)), None) or str(fs.ukey(path))
    if not size:
        raise InputError((f"{shown} is empty",))
    if path.endswith(COMPRESSED):
        raise InputError((f"{shown} is compressed: decompress it first, or convert it to Parquet",))
    return DataFile(url, size, stamp)
