"""Where a ps can be reached, as plain data that travels in JSON and through Dask."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.scratch import boot_id

__all__ = ["Address", "new_unix_name", "unix_path"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a ps listens."""

    host: str
    tcp_port: int | None
    unix_name: str | None
    boot_id: str

    @property
    def is_on_this_host(self) -> bool:
        """Whether this process runs under the same kernel."""
        return bool(self.boot_id) and self.boot_id == boot_id()

    def to_dict(self) -> dict[str, Any]:
        """Return the address as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Address:
        """Make an address of what `to_dict` returned.

        Raises
        ------
        UsageError
            Naming each key that is missing, unknown or of the wrong type.
        """
        faults = _faults(facts)
        if faults:
            raise UsageError(tuple(faults))
        return cls(**facts)


_TYPES: dict[str, tuple[type, ...]] = {
    "host": (str,),
    "tcp_port": (int, type(None)),
    "unix_name": (str, type(None)),
    "boot_id": (str,),
}


def _faults(facts: Mapping[str, Any]) -> list[str]:
    names = [f.name for f in fields(Address)]
    faults = [f"address of a ps: unknown key {key!r}{did_you_mean(key, names)}" for key in facts if key not in names]
    for name in names:
        if name not in facts:
            faults.append(f"address of a ps: {name!r} is missing")
        elif not isinstance(facts[name], _TYPES[name]) or isinstance(facts[name], bool):
            wanted = " or ".join("null" if kind is type(None) else kind.__name__ for kind in _TYPES[name])
            faults.append(f"address of a ps: {name!r} should be {wanted}, got {facts[name]!r}")
    port = facts.get("tcp_port")
    if isinstance(port, int) and not 0 < port < 65536:
        faults.append(f"address of a ps: 'tcp_port' should be from 1 to 65535, got {port}")
    return faults


def new_unix_name() -> str | None:
    """Return a fresh name for an abstract Unix socket, 128 random bits; None where the system has no such sockets."""
    if not sys.platform.startswith("linux") or not hasattr(socket, "AF_UNIX"):
        return None
    return f"psflow-{secrets.token_hex(16)}"


def unix_path(name: str) -> str:
    """Return what the socket calls want for the abstract name `name`."""
    return "\0" + name
