"""The doors of a ps: listening sockets, and who may come in."""

from __future__ import annotations

import os
import socket
import struct

from psflow.ps_runtime.errors import UsageError
from psflow.ps_runtime.transport.address import unix_path

__all__ = ["is_same_user", "listen_on_tcp", "listen_on_unix", "tune"]

_BACKLOG = 1024
_UNIX_BUFFER_BYTES = 4 * 1024 * 1024
_LOOPBACK_BUFFER_BYTES = 512 * 1024
"""So what is under way to a process of this host stays in the cache of a core."""
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 45_000}
"""In seconds, and one in ms: after 45 s a connection ends whose peer, or a firewall before it, is silent."""
_UCRED = struct.Struct("iII")


def listen_on_tcp(host: str) -> socket.socket:
    """Return a non-blocking listener on a free port of `host`.

    Raises
    ------
    UsageError
        If `host` is not a name or an address of this machine.
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
    """Return whether the process at the other end of a Unix socket runs as our user, says the kernel."""
    _, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return bool(uid == os.geteuid())


def tune(sock: socket.socket) -> None:
    """Set what a connected socket wants of the kernel: no delay, signs of life, and as much under way as is good."""
    if sock.family == socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNIX_BUFFER_BYTES)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # macOS has fewer of them
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    if _leads_to_this_host(sock):  # to others the kernel's own tuning does better, which a size would switch off
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LOOPBACK_BUFFER_BYTES)


def _leads_to_this_host(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockname()[0] == sock.getpeername()[0])
    except OSError:
        return False  # the peer is gone again
