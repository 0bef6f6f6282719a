"""Addresses in the environment: a proxy sees nothing of this machine, and no password of theirs is written."""

from __future__ import annotations

import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.flows.conftest import DIGITS_CONF, Project
from tests.flows.planted_secrets import MARK, holders
from tests.mlflow_server import MlflowServer

pytestmark = pytest.mark.piece(number=3)

ASK = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/secret')"


class Proxy(socketserver.ThreadingTCPServer):
    """One that writes down what it is asked for, and answers that it does not serve."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Refusing)
        self.asked: list[str] = []


class Refusing(socketserver.StreamRequestHandler):
    """Of one connection."""

    server: Proxy

    def handle(self) -> None:
        self.server.asked.append(self.rfile.readline().decode("latin-1").strip())
        self.wfile.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that the environment names, without an exception."""
    with Proxy() as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        yield proxy
        proxy.shutdown()


@pytest.mark.ci
def test_a_proxy_sees_nothing_of_the_servers_of_this_machine(project: Project, proxy: Proxy) -> None:
    conf = project.write("c.yaml", DIGITS_CONF)
    assert project.run("train", conf)["final_step"] == 60
    project.run("up")
    try:
        project.run("status")
    finally:
        project.run("down")
    assert proxy.asked == []


@pytest.mark.ci
def test_what_psflow_did_not_prepare_asks_the_proxy(proxy: Proxy) -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, timeout=60)
    assert "503" in done.stderr
    assert proxy.asked == ["GET http://127.0.0.1:9/secret HTTP/1.1"]


def test_no_password_of_an_address_in_the_environment_is_said_or_written(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "PREFECT_UI_URL", "MLFLOW_S3_ENDPOINT_URL"):
        monkeypatch.setenv(name, f"http://bob:{MARK}@127.0.0.1:9")
    server = MlflowServer(f"sqlite:///{project.path}/mlflow.db", project.path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url.replace("://", f"://bob:{MARK}@"))
    conf = project.write("c.yaml", DIGITS_CONF)
    commands = {("doctor",): 0, ("plan", conf): 0, ("train", conf): 0, ("evaluate", conf): 0, ("status",): 0}
    server.start()
    try:
        heard = [project.heard(*command, exit_code=code) for command, code in commands.items()]
    finally:
        server.stop()
    heard.append(project.heard("doctor", exit_code=1))
    assert str(heard[-1]).count(server.url) >= 1  # the address without its password
    assert MARK not in str(heard)
    assert holders(project.path) == {}
