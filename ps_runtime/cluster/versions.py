"""Compares psflow, Python and numpy on the Dask workers of a job with those of its owner."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from distributed import Client

from psflow.ps_runtime.cluster.connecting import is_own_cluster

ANSWER_SECS = 3.0
"""For Dask workers to report their versions; those that are late are found by the limits of their roles."""
HOST = "host"
COMPARED = ("psflow", "Python", "numpy")

logger = logging.getLogger(__name__)


def version_probe() -> Callable[[], dict[str, str]]:
    """Return a function that reports host and versions where it runs.

    It travels by value, since it is defined here: whatever psflow is there runs it, or none.
    """

    def versions() -> dict[str, str]:
        import hashlib
        import os
        import platform
        import socket
        from importlib import metadata, util

        found = {}
        for name in ("psflow", "numpy"):
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found[name] = "missing"
        spec = util.find_spec("psflow")
        digest = hashlib.sha256()  # two commits may have the same version
        for top in (spec and spec.submodule_search_locations) or ():
            for folder, subfolders, files in os.walk(top, followlinks=True):
                subfolders.sort()
                for file in sorted(file for file in files if file.endswith(".py")):
                    path = os.path.join(folder, file)
                    digest.update(os.path.relpath(path, top).encode())
                    with open(path, "rb") as stream:
                        digest.update(stream.read())
        return {
            "host": socket.gethostname(),
            "psflow": f"{found['psflow']} (code {digest.hexdigest()[:8]})",
            "Python": ".".join(platform.python_version_tuple()[:2]),
            "numpy": ".".join(found["numpy"].split(".")[:2]),
        }

    return versions


def own_versions() -> dict[str, str]:
    """Return the versions of this process."""
    return {name: version for name, version in version_probe()().items() if name != HOST}


class Versions:
    """The Dask workers of a cluster whose versions differ from those of this process; each is asked once.

    A worker that does not answer counts as one with the same versions.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._faults: dict[str, str | None] = {}
        """By address; None where nothing differs."""

    def faults(self, slots: Iterable[str]) -> dict[str, str]:
        """Return what differs, for each of `slots` where something does. Blocks for seconds at most."""
        if is_own_cluster(self._client):  # its processes are copies
            return {}
        wanted = set(slots)
        if new := wanted - self._faults.keys():
            own = own_versions()
            found = self._ask(new)
            self._faults |= {slot: _fault(slot, found[slot], own) if slot in found else None for slot in new}
        return {slot: fault for slot, fault in self._faults.items() if fault is not None and slot in wanted}

    def _ask(self, slots: Iterable[str]) -> Mapping[str, Any]:
        client: Any = self._client  # Client.run has no limit
        try:
            found: Mapping[str, Any] = client.sync(
                client._run,
                version_probe(),
                workers=list(slots),
                on_error="return",
                callback_timeout=ANSWER_SECS,
            )
        except (OSError, TimeoutError) as error:
            logger.warning("the versions of Dask workers are unknown: %s", error or "they do not answer")
            return {}
        return found


def _fault(slot: str, found: Any, own: Mapping[str, str]) -> str | None:
    if isinstance(found, OSError):  # it is gone, which its role will report
        return None
    if not isinstance(found, Mapping):
        return f"the Dask worker {slot} cannot report its versions ({found!r})"
    differences = [name for name, version in own.items() if found[name] != version]
    if not differences:
        return None
    theirs, ours = (", ".join(f"{name} {of[name]}" for name in differences) for of in (found, own))
    return f"the Dask worker {slot} on {found[HOST]} has {theirs}, but this process {ours}"
