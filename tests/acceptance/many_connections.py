"""A program that keeps connections to a ps open and says nothing, or one byte a second, until its input ends.

It becomes another user first, so it is given as text to an interpreter that only its own user may start.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import sys

NUM_SILENT, NUM_SLOW = 1000, 200
BEGINNING = {True: b"psf1" + bytes(51), False: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(44)}
"""Over a Unix socket a header but for its last byte; over TCP the beginning of a TLS handshake."""


def connected(where: str) -> socket.socket | None:
    """Return a connection to ``@name`` or ``host:port``; None where nobody takes it now."""
    host, _, port = where.rpartition(":")
    sock = socket.socket(socket.AF_UNIX if where.startswith("@") else socket.AF_INET)
    try:
        sock.connect("\0" + where[1:] if where.startswith("@") else (host, int(port)))
    except OSError:
        sock.close()
        return None
    return sock


def said(sock: socket.socket | None, num_said: int) -> bool:
    """Say the next byte; return whether somebody listens still."""
    try:
        return sock is not None and sock.send(BEGINNING[sock.family == socket.AF_UNIX][num_said:][:1]) == 1
    except OSError:
        return False


def main(uid: int) -> None:
    """Be the user `uid`, or who we are if that is 0; connect to what the first line of the input names."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if uid:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    print(os.getuid(), flush=True)
    where = sys.stdin.readline().strip()
    silent = [connected(where) for _ in range(NUM_SILENT)]
    slow = [(connected(where), 0) for _ in range(NUM_SLOW)]
    print(sum(sock is not None for sock in [*silent, *(sock for sock, _ in slow)]), flush=True)
    while not select.select([sys.stdin], [], [], 1.0)[0]:
        slow = [(sock, n + 1) if said(sock, n) else (connected(where), 0) for sock, n in slow]


if __name__ == "__main__":
    main(int(sys.argv[1]))
