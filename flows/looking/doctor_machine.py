"""Is this machine well: versions, directories, shared memory, servers."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from psflow.flows.looking.endpoints import mlflow_endpoint, prefect_endpoint
from psflow.flows.looking.findings import Finding, Level
from psflow.ps_runtime.checkpoint.files import replacing, storing
from psflow.ps_runtime.config.environment import prefect_home
from psflow.ps_runtime.errors import StorageError
from psflow.ps_runtime.transport.shared_memory import why_no_shared_memory
from psflow.tasks.cleaning import held
from psflow.tasks.tracking.store import store_uri

__all__ = ["directory_finding", "machine_findings", "server_findings"]

PACKAGES = ("psflow", "prefect", "mlflow", "dask", "distributed", "numpy")
PROBE_BYTES = 1 << 20
SCARCE_BYTES = 1 << 30
"""Free space below which a warning is due: a few checkpoints of a large model."""


def machine_findings() -> Iterator[Finding]:
    """Yield what is found of this machine."""
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    yield Finding(Level.OK, "versions", f"Python {platform.python_version()}, {versions}")
    for path in dict.fromkeys((Path.cwd(), prefect_home(), Path(tempfile.gettempdir()))):
        yield directory_finding(path)
    if sizes := held(store_uri()):
        yield Finding(Level.OK, "sizes", f"{', '.join(map(str, sizes))}; psflow clean says what of it may go")
    reason = why_no_shared_memory()
    if reason:
        yield Finding(Level.WARNING, "memory", f"cannot be shared: {reason}; roles use sockets, which is slower")
    else:
        yield Finding(Level.OK, "memory", f"can be shared; {os.cpu_count()} processors")


def server_findings() -> Iterator[Finding]:
    """Yield whether the servers that commands here would use answer."""
    for topic, endpoint in (("prefect", prefect_endpoint()), ("mlflow", mlflow_endpoint())):
        if endpoint.fault is None:
            yield Finding(Level.OK, topic, str(endpoint))
        else:
            yield Finding(Level.FAULT, topic, endpoint.fault)


def directory_finding(path: Path) -> Finding:
    """Write a file in `path`, or where that would be made, sync, read and remove it; look how much space is left."""
    path = next(place for place in (path, *path.parents) if place.exists())
    probe = path / f".psflow-doctor-{secrets.token_hex(4)}"
    data = secrets.token_bytes(PROBE_BYTES)
    began = time.monotonic()
    try:
        with storing(str(path)):
            with replacing(str(probe)) as stream:
                stream.write(data)
            is_same = probe.read_bytes() == data
            free = shutil.disk_usage(path).free
    except StorageError as error:
        what = (
            f"{path}: expected to write {PROBE_BYTES >> 20} MB, got {error.reason}; free space or correct permissions"
        )
        return Finding(Level.FAULT, "disk", what)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    if not is_same:
        return Finding(
            Level.FAULT, "disk", f"{path}: the file reads back different from what was written; check the disk"
        )
    millis = 1000 * (time.monotonic() - began)
    text = f"{path}: {free / 1e9:.3g} GB free, {PROBE_BYTES >> 20} MB written and synced in {millis:.0f} ms"
    if free < SCARCE_BYTES:
        return Finding(Level.WARNING, "disk", f"{text}; free space before a long training")
    return Finding(Level.OK, "disk", text)
