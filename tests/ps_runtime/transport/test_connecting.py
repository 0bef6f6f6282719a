"""Which transport a role takes, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from psflow.ps_runtime.errors import BrokenPeerError, UsageError
from psflow.ps_runtime.transport import connecting
from psflow.ps_runtime.transport.connecting import connect
from psflow.ps_runtime.transport.socket_server import SocketServer
from tests.ps_runtime.transport.conftest import CERTIFICATE


@pytest.fixture
def server(probe) -> Iterator[SocketServer]:
    with SocketServer(probe, certificate=CERTIFICATE) as server:
        yield server


@pytest.mark.parametrize(
    ("asked", "got", "why"),
    [("auto", "unix", "same host"), ("unix", "unix", "it was requested"), ("tcp", "tcp", "it was requested")],
)
def test_the_transport_asked_for(server, asked, got, why):
    with connect(server.address, asked, peer="ps-0", certificate=CERTIFICATE) as connection:
        assert connection.transport == got
        assert connection.statistics()["why"] == why
        place = server.address.unix_name if got == "unix" else f"127.0.0.1:{server.address.tcp_port}"
        assert connection.peer.startswith("ps-0 at ")
        assert connection.peer.endswith(str(place))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"boot_id": "another"}, "no Unix socket: no connection to ps: it runs on another host"),
        ({"boot_id": ""}, "no Unix socket: no connection to ps: it runs on another host"),
        ({"unix_name": None}, "no Unix socket: no connection to ps: it listens on no Unix socket"),
        ({"unix_name": "psflow-nobody"}, "no Unix socket: no connection to ps at @psflow-nobody: Connection refused"),
    ],
)
def test_auto_falls_back_to_tcp_and_says_why(server, change, why):
    address = dataclasses.replace(server.address, **change)
    with connect(address, certificate=CERTIFICATE) as connection:
        assert connection.transport == "tcp"
        assert connection.statistics()["why"] == why
    with pytest.raises(BrokenPeerError):
        connect(address, "unix")


def test_a_unix_socket_of_another_user_is_not_trusted(server, monkeypatch):
    monkeypatch.setattr(connecting, "is_same_user", lambda sock: False)
    with pytest.raises(BrokenPeerError, match="another user now owns it"):
        connect(server.address, "unix")


def test_nobody_there(probe):
    with SocketServer(probe, certificate=CERTIFICATE) as server:
        address = server.address
    with pytest.raises(BrokenPeerError, match=r"no connection to ps-1 at 127.0.0.1:\d+: Connection refused"):
        connect(address, peer="ps-1", certificate=CERTIFICATE)
    with pytest.raises(BrokenPeerError, match=r"no connection to ps at @psflow-\w+: Connection refused"):
        connect(dataclasses.replace(address, tcp_port=None))
    with pytest.raises(BrokenPeerError, match="it does not listen on TCP"):
        connect(dataclasses.replace(address, tcp_port=None), "tcp")


def test_an_unknown_transport_is_an_error():
    with pytest.raises(UsageError, match="one of auto, shm, unix, tcp, got 'unx'; did you mean 'unix'"):
        connect(None, "unx")


def test_a_host_that_is_not_ours_is_an_error(probe):
    with pytest.raises(
        UsageError, match=r"a ps cannot listen at '192.0.2.1': .*; expected a name or an address of this"
    ):
        SocketServer(probe, "192.0.2.1", certificate=CERTIFICATE)


def test_a_server_needs_a_door(probe):
    with pytest.raises(UsageError, match="a ps needs TCP here"):
        SocketServer(probe, None, unix=False)
