"""Parses addresses of hosts, and checks that a process can listen there."""

from __future__ import annotations

import errno
import socket

from psflow.ps_runtime.cluster.port_holders import holder_of
from psflow.ps_runtime.errors import UsageError

REASONS = {
    errno.EADDRNOTAVAIL: "this host has no such address; start the process there, or correct the address",
    errno.EACCES: "this user may not listen there; choose a port from 1024 on",
}


def resolved(address: str) -> tuple[str, int]:
    """Return the numeric host and the port of ``host:port``; IPv4 where there is one.

    Raises OSError if the name cannot be resolved.
    """
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    _, _, _, _, place = min(found, key=lambda one: one[0] is not socket.AF_INET)
    return str(place[0]), int(port)


def dask_address(address: str) -> str:
    """Return ``tls://host:port`` of an address, with a numeric host; OSError as `resolved`."""
    host, port = resolved(address)
    return f"tls://{dask_host(host)}:{port}"


def dask_host(host: str) -> str:
    """Return a numeric host in Dask's form: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def is_of_this_machine(host: str) -> bool:
    """Whether a process of this machine may listen at a numeric host, at some port."""
    try:
        with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
            listener.bind((host, 0))
    except OSError:
        return False
    return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def check_can_listen(who: str, address: str) -> tuple[str, int]:
    """Return the numeric host and the port of an address at which this process may listen.

    Raises UsageError if it may not: the port is taken, or the address is not one of this host.
    """
    try:
        host, port = resolved(address)
    except OSError as error:
        raise UsageError((f"{who} is at {address}, but that host cannot be resolved: {error.strerror}",)) from None
    with socket.socket(_family(host), socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like a permanent listener
        try:
            listener.bind((host, port))
            listener.listen()
        except OSError as error:
            raise listen_fault(who, address, error) from None
    return host, port


def listen_fault(who: str, address: str, error: OSError) -> UsageError:
    """Return the error for a process that cannot listen at its address, from the system's error."""
    reason = REASONS.get(error.errno or 0, error.strerror)
    if error.errno == errno.EADDRINUSE:
        reason = holder_of(int(address.rpartition(":")[2]))
    return UsageError((f"{who} cannot listen at {address}: {reason}",))
