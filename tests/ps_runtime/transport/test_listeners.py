import socket

import pytest

from psflow.ps_runtime.transport.listeners import listen_on_tcp, tune


@pytest.fixture
def pair():
    """Return both ends of a TCP connection of this host."""
    with listen_on_tcp("127.0.0.1") as listener:
        listener.setblocking(True)
        with socket.create_connection(listener.getsockname()) as here:
            there, _ = listener.accept()
            with there:
                yield here, there


def test_less_is_under_way_within_a_host_than_the_kernel_would_allow(pair):
    here, there = pair
    for end in (here, there):
        before = end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        tune(end)
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 512 * 1024 != before  # it doubles the number
        assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_connection_whose_peer_is_silent_ends_after_45_s(pair):
    for end in pair:
        tune(end)
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, number, unacknowledged = (
            end.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        )
        assert idle + interval * number == 45
        assert unacknowledged == 45_000


def test_to_another_host_the_kernel_tunes_by_itself(pair):
    here, _ = pair

    class Elsewhere(socket.socket):
        def getpeername(self):
            return ("192.0.2.1", 1)

    with Elsewhere(fileno=socket.dup(here.fileno())) as end:
        before = end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        tune(end)
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == before


def test_a_peer_that_is_gone_is_no_error():
    with socket.socket() as sock:
        tune(sock)
