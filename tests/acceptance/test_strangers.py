"""Another user of the machine, during a training and beside psflow up: nothing got, nothing disturbed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import dask
import psutil
import pytest
from distributed import LocalCluster
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from psflow.ps_runtime.checkpoint.job_file import JobFile
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from tests.acceptance.conftest import wait_for
from tests.acceptance.stranger import PREFECT, SOCKETS, of_websocket
from tests.flows import planted_secrets
from tests.flows.conftest import ROOT, Project
from tests.flows.interrupting import LINE, write_line

pytestmark = [
    pytest.mark.piece(number=3),
    pytest.mark.timeout(600),
    pytest.mark.cluster,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user"),
]

SECS = 200.0
CONF = LINE.replace("num_batches: 200", f"num_batches: {10**9}, secrets: {planted_secrets.YAML}")


@pytest.fixture
def project() -> Iterator[Project]:
    """A project in a directory that everybody can enter, as below /srv or on a shared disk."""
    folder = Path(tempfile.mkdtemp(prefix="psflow-strangers-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield Project(folder, SECS)
    shutil.rmtree(folder)


def stranger_gets(told: dict[str, Any]) -> list[str]:
    """Return what another user gets of listeners, processes and folders."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.acceptance.stranger"],
        input=json.dumps(told),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=SECS,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def listeners(processes: list[psutil.Process]) -> dict[str, Any]:
    """Return where processes listen, all of it on loopback; the system tells everybody."""
    pids = {process.pid for process in processes}
    tcp = [c.laddr for c in psutil.net_connections("inet") if c.status == psutil.CONN_LISTEN and c.pid in pids]
    beyond = [address for address in tcp if not ip_address(address.ip).is_loopback]
    assert not beyond, f"listens beyond loopback: {beyond}"
    unix = {c.laddr[1:] for c in psutil.net_connections("unix") if c.pid in pids and c.laddr.startswith("@")}
    return {"tcp": sorted({address.port for address in tcp}), "unix": sorted(unix), "pids": sorted(pids)}


@pytest.mark.ci
def test_what_listens_beyond_loopback_is_found() -> None:
    with (
        socket.create_server(("0.0.0.0", 0)),
        pytest.raises(AssertionError, match=r"listens beyond loopback: .*0\.0\.0\.0"),
    ):
        listeners([psutil.Process()])


@contextmanager
def open_stream() -> Iterator[int]:
    """Stream events to everybody, as a Prefect server without a password does; give the port."""

    def welcome(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            connection.recv()
            connection.send("welcome")

    def select(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return PREFECT if PREFECT in offered else None

    logger = logging.getLogger("quiet")
    logger.setLevel(logging.CRITICAL)  # the stranger also speaks other protocols
    with serve(welcome, "127.0.0.1", 0, select_subprotocol=select, logger=logger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.socket.getsockname()[1]


@pytest.mark.ci
def test_streams_of_events_that_are_open_are_found() -> None:
    with open_stream() as port:
        got = list(of_websocket(port))
    for path in SOCKETS:
        assert got.count(f"WebSocket {path} at {port}: open") == 1
        assert got.count(f"WebSocket {path} at {port}: 'welcome'") == 2


@pytest.mark.ci
def test_the_stranger_gets_what_is_open(project: Project) -> None:
    (project.path / "note").write_text("the word is pl4nted")
    sleeper = subprocess.Popen(["sleep", "1000"], user="nobody", group="nogroup", extra_groups=[])
    try:
        scratch = {"temporary-directory": str(project.path / "dask")}
        with (
            dask.config.set(scratch),
            LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0") as cluster,
        ):
            told = listeners([psutil.Process()]) | {"pids": [sleeper.pid], "unix": []}
            got = stranger_gets({**told, "folders": [str(project.path)], "words": [planted_secrets.MARK]})
            port = cluster.scheduler_address.rpartition(":")[2]
    finally:
        sleeper.kill()
        sleeper.wait()
    assert any(f"Dask at tcp://127.0.0.1:{port}" in sentence for sentence in got)
    assert any(sentence.startswith("HTTP GET /status at ") for sentence in got)
    assert f"a secret in {project.path}/note" in got
    assert {f"/proc/{sleeper.pid}/{name}" for name in ("environ", "maps", "fd", "mem")} <= set(got)


@pytest.mark.parametrize("beside_servers", [False, True], ids=["alone", "beside psflow up"])
def test_nothing_is_got_of_a_training_and_it_goes_on(project: Project, beside_servers: bool) -> None:
    words = [planted_secrets.MARK]
    servers: list[psutil.Process] = []
    if beside_servers:
        project.run("up")
        started = json.loads((project.path / "prefect" / "psflow-servers.json").read_text())
        words += [server["auth_string"].partition(":")[2] for server in started]
        servers = [psutil.Process(server["process"]["pid"]) for server in started]
    conf = write_line(project, CONF)
    (project.path / conf).chmod(0o600)
    process = project.start("train", conf)
    try:
        model_dir = str(project.path / "runs" / "line")
        store = CheckpointStore(model_dir)
        wait_for(lambda: len(store.steps()) > 1, SECS, "checkpoints")
        job = psutil.Process(process.pid)
        members = [job, *job.children(recursive=True), *servers]
        told = listeners(members)
        assert len(told["tcp"]) >= 9 + len(servers)  # scheduler, 4 nannies, 4 workers
        assert len(told["unix"]) >= 1
        before = store.latest()
        record = JobFile(model_dir).read()
        assert record is not None
        assert record.owner is not None
        words.append(record.owner.token)
        got = stranger_gets({**told, "folders": [str(project.path), "/dev/shm"], "words": words})
        assert got == []
        assert before is not None
        wait_for(lambda: (store.latest() or 0) > before + 200, SECS, "further checkpoints")
        assert {each.pid for each in members} <= set(psutil.pids())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
        if beside_servers:
            project.run("down")
    assert process.returncode == 128 + signal.SIGINT, err
    assert " lost" not in err
    assert "Traceback" not in err
    assert planted_secrets.MARK not in err
