"""Peers of a ps on TCP that are not psflow's own: the sockets of `ssl`."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

from psflow.ps_runtime.transport.tls import client_context


def shaken(
    sock: socket.socket, given: str | ssl.SSLContext | None, step: Callable[[], None], timeout_secs: float
) -> ssl.SSLSocket:
    """Return the socket after the handshake with a ps that takes a step whenever it is to answer.

    `given` is a certificate or a context; a peer without shows none, and trusts any.
    """
    match given:
        case str():
            context = client_context(given)
        case ssl.SSLContext():
            context = given
        case None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is sent is there at the next step
    peer = context.wrap_socket(sock, do_handshake_on_connect=False)
    peer.setblocking(False)
    while True:
        try:
            peer.do_handshake()
            break
        except ssl.SSLWantReadError:
            step()
        except BaseException:
            peer.close()
            raise
    step()
    peer.settimeout(timeout_secs)
    return peer


def received(sock: socket.socket, num_bytes: int) -> bytes:
    """Return so many bytes, or fewer if the ps hangs up before."""
    data = b""
    while len(data) < num_bytes and (more := sock.recv(num_bytes - len(data))):
        data += more
    return data
