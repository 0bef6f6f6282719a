"""The formats by name, and a data set from plain configuration."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from psflow.ps_runtime.data.csv_table import read_csv
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.digits import read_digits
from psflow.ps_runtime.data.idx_images import read_idx
from psflow.ps_runtime.data.npz_arrays import read_npz
from psflow.ps_runtime.errors import InputError, did_you_mean

__all__ = ["FORMATS", "open_dataset"]


@dataclass(frozen=True, slots=True)
class Format:
    """A reader, and the keys of the configuration that it takes."""

    read: Callable[..., Dataset]
    keys: tuple[str, ...]


FORMATS: Mapping[str, Format] = {
    "digits": Format(read_digits, ("split",)),
    "csv": Format(read_csv, ("path", "label", "features")),
    "tsv": Format(functools.partial(read_csv, delimiter="\t"), ("path", "label", "features")),
    "npz": Format(read_npz, ("path", "label", "features")),
    "idx": Format(read_idx, ("path", "labels_path")),
}
COMMON_KEYS = ("batch_size", "shuffle", "epochs", "seed")


def open_dataset(spec: Mapping[str, Any]) -> Dataset:
    """Read the data set that a configuration describes.

    Parameters
    ----------
    spec : mapping
        ``format``: digits, csv, tsv, npz or idx; then ``split`` (digits), ``path`` and ``labels_path`` (idx), or
        ``path``, ``label``, ``features`` (others); ``batch_size`` (default: all records), ``epochs`` (default 1; None:
        for ever), ``shuffle`` (default False) and its ``seed`` (default 0).

    Raises
    ------
    InputError
        With all faults: an unknown format or key, a value of the wrong type; then as the reader of the format.

    Examples
    --------
    >>> open_dataset({"format": "digits", "split": "test", "batch_size": 60}).num_records
    360
    """
    name = spec.get("format")
    if not isinstance(name, str) or name not in FORMATS:
        near = did_you_mean(name, FORMATS) if isinstance(name, str) else ""
        raise InputError((f"unknown input format {name!r}: expected one of {', '.join(FORMATS)}{near}",))
    chosen = FORMATS[name]
    if faults := _faults(spec, name, chosen):
        raise InputError(tuple(faults))
    dataset = chosen.read(**{key: spec[key] for key in chosen.keys if key in spec})
    if spec.get("batch_size") is not None:
        dataset = dataset.batch(spec["batch_size"])
    if spec.get("shuffle"):
        dataset = dataset.shuffle(spec.get("seed") or 0)
    return dataset.repeat(spec.get("epochs", 1))


def _faults(spec: Mapping[str, Any], name: str, chosen: Format) -> list[str]:
    known = ("format", *chosen.keys, *COMMON_KEYS)
    faults = [
        f"unknown key {key!r} for the input format {name!r}: expected {', '.join(known)}{did_you_mean(str(key), known)}"
        for key in spec
        if key not in known
    ]
    if "path" in chosen.keys and "path" not in spec:
        faults.append(f"the input format {name!r} needs a path")
    for key, (expected, is_right) in EXPECTED.items():
        if key in spec and key in known and not is_right(spec[key]):
            faults.append(f"{key} of the input is {spec[key]!r}: expected {expected}")
    return faults


def _is_count(value: object, minimum: int) -> bool:
    return type(value) is int and value >= minimum


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_path(value: object) -> bool:
    return isinstance(value, os.PathLike) or _is_name(value)


EXPECTED: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "path": ("a path or URL", _is_path),
    "labels_path": ("a path or URL, or null", lambda v: v is None or _is_path(v)),
    "split": ("a str", _is_name),
    "label": ("a str, or null", lambda v: v is None or _is_name(v)),
    "features": (
        "a list of str, or null",
        lambda v: v is None or (isinstance(v, list | tuple) and all(map(_is_name, v))),
    ),
    "batch_size": ("an int >= 1, or null", lambda v: v is None or _is_count(v, 1)),
    "shuffle": ("true or false", lambda v: isinstance(v, bool)),
    "epochs": ("an int >= 1, or null to repeat for ever", lambda v: v is None or _is_count(v, 1)),
    "seed": ("an int >= 0, or null", lambda v: v is None or _is_count(v, 0)),
}
