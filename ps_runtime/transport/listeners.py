"""Listens for a ps: its sockets, their options, and the check of local users."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from psflow.ps_runtime.errors import UsageError, did_you_mean
from psflow.ps_runtime.scratch import boot_id


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which a ps listens."""

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

        Raises UsageError with each key that is missing, unknown or of the wrong type.
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
    """Return the address of the abstract name `name` for socket calls."""
    return "\0" + name


_BACKLOG = 1024
_UNIX_BUFFER_BYTES = 4 * 1024 * 1024
_LOOPBACK_BUFFER_BYTES = 512 * 1024
"""This size keeps data under way to a process of this host in the cache of a core."""
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 45_000}
"""In seconds, and one in ms: a connection with a silent peer or firewall ends after 45 s."""
_UCRED = struct.Struct("iII")


def listen_on_tcp(host: str) -> socket.socket:
    """Return a non-blocking listener on a free port of `host`.

    Raises UsageError if `host` is not a name or an address of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        return _listen(family, address)
    except OSError as error:
        fault = f"a ps cannot listen at {host!r}: {error}; expected a name or an address of this machine"
        raise UsageError((fault,)) from error


def listen_on_unix(name: str) -> socket.socket:
    """Return a non-blocking listener on the abstract Unix socket `name`."""
    return _listen(socket.AF_UNIX, unix_path(name))


def _listen(family: int, address: object) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind(address)  # type: ignore[arg-type]
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def is_same_user(sock: socket.socket) -> bool:
    """Return whether the process at the other end of a Unix socket runs as our user, according to the kernel."""
    _, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return bool(uid == os.geteuid())


def tune(sock: socket.socket) -> None:
    """Set the options of a connected socket: no delay, keepalive, and buffer sizes."""
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_BUFFER_BYTES)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # macOS has fewer of them
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    if _leads_to_this_host(
        sock
    ):  # for remote peers the kernel's own tuning is better, and a fixed size would disable it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LOOPBACK_BUFFER_BYTES)


def _leads_to_this_host(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockname()[0] == sock.getpeername()[0])
    except OSError:
        return False  # the peer is gone again
