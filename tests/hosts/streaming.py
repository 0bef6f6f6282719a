"""Rounds of bytes between two hosts, encrypted as those of a ps or not: ``python -m tests.hosts.streaming JSON``."""

from __future__ import annotations

import json
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from psflow.ps_runtime.transport.tls import TlsSocket, client_context, server_context

NUM_ROUNDS = 20
SHORT_BYTES = 56


def _receive(connection: socket.socket, buffer: memoryview) -> None:
    while buffer:
        with suppress(BlockingIOError):  # only a part of a record is there
            buffer = buffer[connection.recv_into(buffer) :]


def serve(connection: socket.socket, num_bytes: int) -> None:
    """Answer a short message by a long one, and a long one by a short one."""
    buffer = memoryview(bytearray(num_bytes))
    for _ in range(1 + NUM_ROUNDS):
        _receive(connection, buffer[:SHORT_BYTES])
        connection.sendall(buffer)
        _receive(connection, buffer)
        connection.sendall(buffer[:SHORT_BYTES])


def ask(connection: socket.socket, num_bytes: int) -> float:
    """Return how long a round of a pull and a push takes, in seconds; the first one is not counted."""
    buffer = memoryview(bytearray(num_bytes))
    began = 0.0
    for i in range(1 + NUM_ROUNDS):
        if i == 1:
            began = time.monotonic()
        connection.sendall(buffer[:SHORT_BYTES])
        _receive(connection, buffer)
        connection.sendall(buffer)
        _receive(connection, buffer[:SHORT_BYTES])
    return (time.monotonic() - began) / NUM_ROUNDS


def main(address: str, port: int, num_bytes: int, certificate_file: str | None, is_server: bool) -> None:
    """Serve one connection, or make it and print the seconds of a round."""
    if is_server:
        listening = socket.create_server((address, port))
        print("listening", flush=True)
        connection, _ = listening.accept()
    else:
        connection = socket.create_connection((address, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if certificate_file is not None:
        certificate = Path(certificate_file).read_text()
        connection = TlsSocket(connection, (server_context if is_server else client_context)(certificate))
        connection.shake_hands()
    if is_server:
        serve(connection, num_bytes)
    else:
        print(ask(connection, num_bytes), flush=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
