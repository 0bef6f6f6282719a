"""Seals arrays and a description with a checksum, to store the results of a scan."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from psflow.ps_runtime.errors import InputError

DIGEST_BYTES = hashlib.sha256().digest_size
DESCRIPTION = "description"

Arrays = Mapping[str, NDArray[Any]]
T = TypeVar("T")


def seal(described: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Return a checksum, then plain data as JSON and arrays, together as safetensors."""
    description = np.frombuffer(json.dumps(described, sort_keys=True).encode(), np.uint8)
    content: bytes = save({DESCRIPTION: description, **arrays})
    return hashlib.sha256(content).digest() + content


def unseal(content: bytes, what: str, make: Callable[[Mapping[str, Any], Arrays], T]) -> T:
    """Return `make` applied to the sealed description and arrays.

    Raises InputError if `content` is damaged, or of another version of psflow.
    """
    checksum, rest = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    if hashlib.sha256(rest).digest() != checksum:
        raise InputError((f"{what} is damaged: its checksum differs",))
    try:
        arrays = load(rest)
        return make(json.loads(arrays[DESCRIPTION].tobytes()), arrays)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError((f"{what} is of another version ({type(error).__name__}: {error})",)) from None
