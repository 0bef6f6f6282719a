"""Connects a role to a ps: chooses the transport, and records the reason."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from psflow.ps_runtime.errors import BrokenPeerError, UsageError, WaitTimeoutError, did_you_mean
from psflow.ps_runtime.transport.listeners import Address, is_same_user, tune, unix_path
from psflow.ps_runtime.transport.shared_memory import why_no_shared_memory
from psflow.ps_runtime.transport.sharing import no_sharing
from psflow.ps_runtime.transport.socket_client import Sharing, SocketConnection
from psflow.ps_runtime.transport.tls import TlsSocket, client_context


@dataclass(frozen=True, slots=True)
class Transport:
    """A way to reach a ps, as configurations name it."""

    unix: Sharing
    sharing: Sharing


TRANSPORTS: Mapping[str, Transport] = MappingProxyType(
    {
        "auto": Transport(unix="maybe", sharing="maybe"),
        "shm": Transport(unix="must", sharing="must"),
        "unix": Transport(unix="must", sharing="never"),
        "tcp": Transport(unix="never", sharing="never"),
    }
)


def transport_named(name: str) -> Transport:
    """Return the transport that a configuration names.

    Raises UsageError if there is no transport of that name.
    """
    if not isinstance(name, str) or name not in TRANSPORTS:
        fault = f"transport should be one of {', '.join(TRANSPORTS)}, got {name!r}"
        raise UsageError((fault + did_you_mean(str(name), TRANSPORTS),))
    return TRANSPORTS[name]


def connect(
    address: Address,
    transport: str = "auto",
    timeout_secs: float = 10.0,
    peer: str = "ps",
    *,
    certificate: str = "",
    send_timeout_secs: float = 60.0,
    max_reply_bytes: int = 4 * 1024**3,
    awake_secs: float = 0.0,
) -> SocketConnection:
    """Connect to a ps; TCP needs the `certificate` of the job. `shake_hands` comes before the first request.

    On this host, each wait for a reply may be spent awake for `awake_secs`.

    Raises
    ------
    WaitTimeoutError
        If the ps did not accept the connection in time.
    BrokenPeerError
        If no process listens there, or not on such a transport.
    UsageError
        If `transport` is unknown, or is ``shm`` and this process cannot share memory with that ps.
    """
    wanted = transport_named(transport)
    if wanted.sharing == "must" and (reason := why_no_shared_memory() or _why_no_unix(address)):
        raise UsageError((no_sharing(peer, reason),))
    why = "it was requested"
    if wanted.unix != "never":
        try:
            sock, name = _connect_unix(address, timeout_secs, peer)
        except (BrokenPeerError, WaitTimeoutError) as error:
            if wanted.unix == "must" or address.tcp_port is None:
                raise
            why = f"no Unix socket: {error}"
        else:
            why = "same host" if wanted.unix == "maybe" else why
            return SocketConnection(
                sock, "unix", why, name, send_timeout_secs, max_reply_bytes, wanted.sharing, awake_secs
            )
    sock, name = _connect_tcp(address, certificate, timeout_secs, peer)
    return SocketConnection(sock, "tcp", why, name, send_timeout_secs, max_reply_bytes)


def _why_no_unix(address: Address) -> str:
    if address.unix_name is None:
        return "it listens on no Unix socket"
    return "" if address.is_on_this_host else "it runs on another host"


def _connect_unix(address: Address, timeout_secs: float, peer: str) -> tuple[socket.socket, str]:
    reason = _why_no_unix(address)
    if reason or address.unix_name is None:
        raise BrokenPeerError(peer, reason)
    name = f"{peer} at @{address.unix_name}"
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _connect(sock, unix_path(address.unix_name), timeout_secs, name)
    if not is_same_user(sock):
        sock.close()
        raise BrokenPeerError(name, "another user now owns it")
    return sock, name


def _connect_tcp(address: Address, certificate: str, timeout_secs: float, peer: str) -> tuple[TlsSocket, str]:
    if address.tcp_port is None:
        raise BrokenPeerError(peer, "it does not listen on TCP")
    name = f"{peer} at {address.host}:{address.tcp_port}"
    context = client_context(certificate)
    try:
        family, _, _, _, place = socket.getaddrinfo(address.host, address.tcp_port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BrokenPeerError(name, error.strerror or str(error)) from error
    sock = socket.socket(family, socket.SOCK_STREAM)
    _connect(sock, place, timeout_secs, name)
    return TlsSocket(sock, context), name


def _connect(sock: socket.socket, place: object, timeout_secs: float, name: str) -> None:
    try:
        sock.settimeout(timeout_secs)
        sock.connect(place)  # type: ignore[arg-type]
        sock.settimeout(None)
        tune(sock)
    except TimeoutError:
        sock.close()
        raise WaitTimeoutError(name, "accept a connection", timeout_secs) from None
    except OSError as error:
        sock.close()
        raise BrokenPeerError(name, error.strerror or str(error)) from error
    except BaseException:
        sock.close()
        raise
