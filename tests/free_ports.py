"""Ports on loopback for processes that a test starts a moment later."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress

__all__ = ["free_address", "free_port"]

PORTS = range(20_000, 32_768)
"""Below those that Linux gives to whoever asks for no port in particular: nobody gets one of them meanwhile."""


def _ports_of_this_worker() -> range:
    """Return the ports of which no other worker of pytest-xdist takes one."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    num_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return PORTS[number % num_workers :: num_workers]


_ports = _ports_of_this_worker()
_random = random.SystemRandom()
_given = set[int]()


def free_port() -> int:
    """Return a port at which nobody listens; each is given once in this process."""
    while True:
        port = _random.choice(_ports)
        if port not in _given:
            _given.add(port)
            with suppress(OSError), socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
                return port


def free_address() -> str:
    """Return ``localhost:port`` with a port at which nobody listens."""
    return f"localhost:{free_port()}"
