"""Lists data files given by path, folder, glob or URL."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from fsspec.core import has_magic, url_to_fs
from fsspec.implementations.local import LocalFileSystem

from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.redaction import secret_keys, shown_path
from psflow.ps_runtime.store_calls import read_answer
from psflow.ps_runtime.tabular_files.files import COMPRESSED, DataFile, look_at, readable
from psflow.ps_runtime.tabular_files.partitions import with_folders_apart

NOT_DATA = ("_", ".")
"""Files and folders with these prefixes hold no data unless they are named: markers, temporary files."""


def list_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], suffixes: str | Sequence[str]
) -> tuple[DataFile, ...]:
    """Return the files that some paths match, in the order of the paths; those of a folder or glob are sorted.

    A folder means all files below it with one of `suffixes`, in any case. In folders and globs, names that start with
    ``_`` or ``.`` are skipped. An existing path with the characters of a glob is not a glob.

    Raises InputError if a path matches no file, a file cannot be read, is empty or compressed, or occurs twice, or a
    URL holds a credential. All faulty paths are reported together.
    """
    suffixes = (suffixes,) if isinstance(suffixes, str) else tuple(suffixes)
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise InputError(("no files are given: expected a file, a folder, a glob or a list of these",))
    found: dict[str, DataFile] = {}
    faults = []
    for path in given:
        try:
            for file in _files_of(os.fspath(path), suffixes):
                if file.url in found:
                    faults.append(f"{file.shown} occurs twice: expected each file once")
                found[file.url] = file
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(tuple(faults))
    return tuple(found.values() if len(given) == 1 else with_folders_apart(list(found.values())))


def _files_of(given: str, suffixes: tuple[str, ...]) -> list[DataFile]:
    """Return the files that one path matches, in order."""
    if secret_keys({"url": given}):
        fault = "the URL holds a credential, and a record index keeps URLs; leave it to the environment of the process"
        raise InputError((f"{shown_path(given)}: {fault}",))
    url = given if "://" in given else os.path.abspath(os.path.expanduser(given))
    with readable(url):
        fs, path = url_to_fs(url)
        root, places = read_answer(url, lambda: _places(fs, path, url, suffixes))
        found = [(place, look_at(fs, place, _url_of(fs, place, path, url))) for place in places]
    return [replace(file, folders=os.path.dirname(place[len(root) :].partition("?")[0])) for place, file in found]


def _places(fs: Any, path: str, url: str, suffixes: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the folder above the files that one path matches, and their paths."""
    if fs.exists(path):
        is_folder = fs.isdir(path)
        return (path, _below(fs, path, suffixes)) if is_folder else (os.path.dirname(path), [path])
    if has_magic(path):
        return _fixed_part(path), _matching(fs, path, suffixes)
    if isinstance(fs, LocalFileSystem):
        raise InputError((_no_file(path),))
    raise FileNotFoundError(url)


def _no_file(path: str) -> str:
    """Return why there is no local file; raise the OSError of the file system for any other reason."""
    try:
        os.stat(path)
    except FileNotFoundError:
        if os.path.islink(path):
            return f"{path} is a link to {os.readlink(path)}, which does not exist; correct the link"
    as_written = "; a variable such as $DATA is not replaced: write the path itself" if "$" in path else ""
    return f"there is no file {path}{as_written}"


def _below(fs: Any, folder: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the data files below a folder."""
    below = _walk(folder, ()) if isinstance(fs, LocalFileSystem) else fs.find(folder)
    places = [path for path in sorted(below) if _is_data(path, folder) and _ends_with(path, suffixes)]
    if not places:
        wanted = f" that end with {' or '.join(suffixes)}" if any(suffixes) else ""
        raise InputError((f"{shown_path(folder)} has no files{wanted}",))
    return places


def _walk(folder: str, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the local files below a folder, including those behind links, which fsspec skips."""
    real = os.path.realpath(folder)
    if real in above:
        raise InputError((f"{folder} is a link to a folder that contains it; remove the link",))
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _walk(entry.path, (*above, real))
            else:
                yield entry.path


def _matching(fs: Any, pattern: str, suffixes: tuple[str, ...]) -> list[str]:
    """Return the files that a glob matches, and those below folders that it matches."""
    matches = glob.glob(pattern, recursive=True) if isinstance(fs, LocalFileSystem) else fs.glob(pattern)
    root = _fixed_part(pattern)
    places: list[str] = []
    for path in sorted(matches):
        if _is_data(path, root):
            places += _below(fs, path, suffixes) if fs.isdir(path) else [path]
    if not places:
        raise InputError((f"nothing matches {shown_path(pattern)}",))
    return list(dict.fromkeys(places))  # ** matches a folder and its content


def _fixed_part(pattern: str) -> str:
    """Return the folder above everything that a glob may match."""
    while has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def _is_data(path: str, root: str) -> bool:
    return not any(part.startswith(NOT_DATA) for part in path[len(root) :].strip("/").split("/"))


def _ends_with(path: str, suffixes: tuple[str, ...]) -> bool:
    """Return whether a name ends with a suffix, or would without compression: then it is not skipped."""
    name = path.lower()
    return name.endswith(suffixes) or (name.endswith(COMPRESSED) and os.path.splitext(name)[0].endswith(suffixes))


def _url_of(fs: Any, place: str, given_path: str, given_url: str) -> str:
    """Return the URL of a file found by `given_url`, with its protocol, host and so on."""
    if isinstance(fs, LocalFileSystem):
        return place
    root = given_url.rstrip("/")
    if not root.endswith(given_path):
        return str(fs.unstrip_protocol(place))
    return root[: len(root) - len(given_path)] + place
