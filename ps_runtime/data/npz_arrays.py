"""Reads arrays from a numpy archive."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from numpy.lib import format as npy_format

from psflow.ps_runtime.data.arrays import Array
from psflow.ps_runtime.data.base import Format
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.files import MAX_FILE_BYTES, chosen_names, left_over, one_batch, read_file
from psflow.ps_runtime.data.non_finite import RecordSource
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.keys import Key
from psflow.ps_runtime.redaction import shown_path

SUFFIX = ".npy"
HEADER_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
"""Only structured dtypes use later versions."""


@dataclass(frozen=True, kw_only=True)
class Npz(Format):
    """The arrays of an archive that `numpy.savez` wrote."""

    suffixes: ClassVar[tuple[str, ...]] = (".npz",)

    path: Annotated[str | os.PathLike[str], Key("File or fsspec URL.")]
    label: Annotated[str | None, Key("Array of the labels; null: there are none.")] = "labels"
    features: Annotated[Sequence[str] | None, Key("Arrays that are features; null: all but the label.")] = None

    def read(self) -> Dataset:
        """Return the arrays; see `read_npz`."""
        return read_npz(self.path, self.label, self.features)

    def selecting(self, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return the archive with only the arrays that the model reads; see `Format.selecting`."""
        return replace(self, features=tuple(arrays)) if arrays and self.features is None else self

    @classmethod
    def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
        """Return only the arrays of an archive; see `Format.for_prediction`."""
        return cls(path=location, label=None, features=tuple(arrays) or None)


def read_npz(
    path: str | os.PathLike[str], label: str | None = "labels", features: Iterable[str] | None = None
) -> Dataset:
    """Read the arrays of an archive that `numpy.savez` or `numpy.savez_compressed` wrote.

    Raises
    ------
    InputError
        If the file cannot be read, is not such an archive, has no such array, or an array holds objects (nothing is
        ever unpickled), is larger than it says, or has another number of rows.
    """
    content = read_file(path)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            known = [name.removesuffix(SUFFIX) for name in archive.namelist() if name.endswith(SUFFIX)]
            names = chosen_names(path, "array", known, label, features)
            asked = names if label is None else (*names, label)
            _check_members(archive, path, asked)
            arrays = {name: _read_member(archive, name) for name in asked}
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib, lzma and numpy raise different errors for damaged bytes
        raise InputError((f"{shown_path(path)} is not an archive of numpy.savez, or is damaged: {error}",)) from error
    chosen = {name: arrays[name] for name in names}
    labels = None if label is None else arrays[label]
    return one_batch(RecordSource(shown_path(path)), chosen, labels, label=label, unused=left_over(known, names, label))


def _read_member(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(name + SUFFIX) as member:
        array: Array = npy_format.read_array(member, allow_pickle=False)
        return array


def _check_members(archive: zipfile.ZipFile, path: str | os.PathLike[str], names: tuple[str, ...]) -> None:
    """Refuse objects, and arrays whose claimed size exceeds their bytes, before anything is allocated."""
    faults = []
    total = 0
    for name in names:
        info = archive.getinfo(name + SUFFIX)
        total += info.file_size
        with archive.open(info) as member:
            version = npy_format.read_magic(member)
            if version not in HEADER_READERS:
                faults.append(f"array {name!r} has the npy version {version}, which only structured arrays need")
                continue
            shape, _, dtype = HEADER_READERS[version](member)
            if dtype.hasobject:
                faults.append(f"array {name!r} holds Python objects, which are never unpickled; save it as numbers")
            elif member.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
                faults.append(f"array {name!r} claims {dtype}{list(shape)}, but holds {info.file_size} bytes")
    if total > MAX_FILE_BYTES:
        faults.append(f"the arrays have {total} bytes, at most {MAX_FILE_BYTES} are read into memory")
    if faults:
        raise InputError(tuple(f"{shown_path(path)}: {fault}" for fault in faults))
