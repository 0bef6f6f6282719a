"""What a Dask worker says of its machine; sent to it by ``psflow doctor``."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["worker_facts"]


def worker_facts(mark: str) -> dict[str, Any]:
    """Return facts of the machine of this process.

    Parameters
    ----------
    mark : str
        Path of a file that the one who asks has written.

    Returns
    -------
    dict
        ``host``; ``time``, in Unix seconds; ``mark``, the content of that file, None where it cannot be read;
        ``free_bytes`` of the directory for temporary files.
    """
    try:
        content = Path(mark).read_text()
    except (OSError, UnicodeDecodeError):
        content = None
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return {"host": socket.gethostname(), "time": time.time(), "mark": content, "free_bytes": free}
