"""Where the directories are that users name: the same one may be written in several ways."""

from __future__ import annotations

import os

from fsspec.core import url_to_fs
from fsspec.utils import get_protocol

__all__ = ["absolute", "is_local"]


def absolute(directory: str) -> str:
    """Return the absolute path of a local `directory`, also of a ``file://`` URL; any other URL as it is."""
    if not is_local(directory):
        return directory
    return os.path.abspath(url_to_fs(directory)[1] if "://" in directory else directory)


def is_local(directory: str) -> bool:
    """Whether it is on the disks of this machine, as its path or URL says."""
    return get_protocol(directory) in ("file", "local")
