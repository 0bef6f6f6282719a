"""Addresses of hosts: which of them this machine has, and who may listen there."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from psflow.ps_runtime.cluster.host_addresses import check_can_listen, dask_address, is_of_this_machine
from psflow.ps_runtime.errors import UsageError


def test_an_address_of_another_host() -> None:
    words = "^ps-0 cannot listen at 192.0.2.1:2222: this host has no such address; start the process there, or correct"
    with pytest.raises(UsageError, match=words):
        check_can_listen("ps-0", "192.0.2.1:2222")


def test_a_host_that_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UsageError, match=r"^ps-0 is at far:1, but that host cannot be resolved: Name or service"):
        check_can_listen("ps-0", "far:1")


def test_a_port_that_is_taken() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        words = rf"^the chief cannot listen at localhost:{port}: its own process listens there already; close"
        with pytest.raises(UsageError, match=words):
            check_can_listen("the chief", f"localhost:{port}")
    assert check_can_listen("the chief", f"127.0.0.1:{port}") == ("127.0.0.1", port)


def test_addresses_of_this_machine() -> None:
    assert [is_of_this_machine(one) for one in ("127.0.0.2", "0.0.0.0", "192.0.2.1")] == [True, True, False]


def test_addresses_for_dask() -> None:
    assert [dask_address(one) for one in ("127.0.0.1:1", "[::1]:2")] == ["tls://127.0.0.1:1", "tls://[::1]:2"]
