"""Which process has a port, in words."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from psflow.ps_runtime.cluster.port_holders import holder_of

UNKNOWN = "another process listens there; end it, or choose another port"
LISTENS = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.mark.process
def test_a_process_that_is_stopped_is_named_and_how_to_end_it() -> None:
    with subprocess.Popen([sys.executable, "-c", LISTENS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port, name = int(process.stdout.readline()), psutil.Process(process.pid).name()
            listens = f"process {process.pid} ({name}) listens there"
            assert holder_of(port) == f"{listens}; end it, or choose another port"
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            remedy = f"end it (kill -KILL {process.pid}), or continue it (kill -CONT {process.pid})"
            assert holder_of(port) == f"{listens}, and is stopped; {remedy}"
        finally:
            process.kill()


def test_this_process_is_told_what_it_has_open_and_who_only_talks_to_a_port_does_not_hold_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert holder_of(port).startswith("its own process listens there already; close the session, or end")
            listener.close()
            assert holder_of(port) == UNKNOWN


def test_of_one_that_the_system_does_not_tell_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        [found] = [one for one in psutil.net_connections("tcp") if one.laddr.port == port]
        monkeypatch.setattr(psutil, "net_connections", lambda kind: [found._replace(pid=None)])
        assert holder_of(port) == UNKNOWN

    def refuse(kind: str) -> None:
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(psutil, "net_connections", refuse)
    assert holder_of(port) == UNKNOWN
