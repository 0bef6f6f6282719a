"""Collects facts of a Dask worker and its machine."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from distributed import get_worker


def worker_facts(mark: str) -> dict[str, Any]:
    """Return facts of the machine of this process. Sent to a Dask worker by ``psflow doctor``."""
    try:
        content = Path(mark).read_text()
    except (OSError, UnicodeDecodeError):
        content = None
    free = shutil.disk_usage(tempfile.gettempdir()).free
    return {"host": socket.gethostname(), "time": time.time(), "mark": content, "free_bytes": free}


def this_worker() -> str:
    """Return a name of the Dask worker that runs this task, with its address and host."""
    return f"the Dask worker {get_worker().address} on {socket.gethostname()}"
