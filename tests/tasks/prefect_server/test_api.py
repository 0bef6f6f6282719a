from __future__ import annotations

import http.client
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import psutil
import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, get_current_settings, temporary_settings

from psflow.ps_runtime.errors import ConfigError, RoleFailedError, WaitTimeoutError
from psflow.tasks.prefect_server import monitor
from psflow.tasks.prefect_server.api import check_named_api, named_api_url, prefect_api
from psflow.tasks.prefect_server.local_server import LocalPrefectServer

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, cwd=ROOT)


@pytest.mark.cluster
@pytest.mark.usefixtures("prefect_database")
def test_every_state_is_final_when_the_server_has_ended() -> None:
    done = run(
        """
        from prefect import flow, get_run_logger, task
        from psflow.tasks.prefect_server.api import prefect_api
        from psflow.tasks.prefect_server.local_server import LocalPrefectServer

        server = LocalPrefectServer()

        @task(log_prints=False)
        def one(number):
            if number == 7:
                raise ValueError("seven")

        @flow
        def many():
            [future.wait() for future in [one.submit(number) for number in range(40)]]
            get_run_logger().info("the last word")

        with prefect_api(server) as url:
            many()
        print(server.pid)
        """
    )
    assert done.returncode == 0, done.stderr
    assert "ephemeral" not in done.stderr.lower()
    assert done.stderr.count("Traceback") == done.stderr.count("ValueError: seven\n") // 1 == 1, done.stderr
    assert not psutil.pid_exists(int(done.stdout))
    with closing(sqlite3.connect(get_current_settings().home / "prefect.db")) as database:
        flows = "select id from flow_run where flow_id in (select id from flow where name = 'many')"
        states = dict(
            database.execute(f"select state_type, count(*) from task_run where flow_run_id in ({flows}) group by 1")
        )
        words = database.execute(f"select message from log where flow_run_id in ({flows})").fetchall()
        of_flows = f"select event from events where resource_id in (select 'prefect.flow-run.' || id from ({flows}))"
        events = {event for (event,) in database.execute(of_flows)}
    assert "prefect.flow-run.Completed" in events
    assert "prefect.flow-run.heartbeat" not in events, "the end of a flow waits for the thread that sends them"
    assert states == {"COMPLETED": 39, "FAILED": 1}
    assert ("the last word",) in words


OWNER = """
from psflow.tasks.prefect_server.local_server import LocalPrefectServer

server = LocalPrefectServer()
print(server.wait(), server.auth_string, server.pid, flush=True)
input()
"""


def refused(url: str, auth_string: str, pid: int) -> bool:
    """Return whether a server tells nobody else anything, and its process nothing of the password."""
    password = auth_string.partition(":")[2]
    answers = set()
    for path, headers in (("/api/health", {}), ("/api/admin/version", {}), ("/", {"Authorization": "Basic cDpw"})):
        with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answers.add((answer.status, answer.read()))
    return answers == {(401, b"")} and password not in " ".join(psutil.Process(pid).cmdline())


@pytest.mark.cluster
@pytest.mark.usefixtures("prefect_database")
def test_named_api_is_used_and_left_running_and_ends_when_its_owner_is_killed() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as owner:
        try:
            assert owner.stdout is not None
            url, auth_string, pid = owner.stdout.readline().split()
            server = psutil.Process(int(pid))
            with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: auth_string}):
                assert named_api_url() == url
                with prefect_api() as used:
                    assert used == url
                    assert get_current_settings().flows.heartbeat_frequency is not None
                assert server.is_running()
            assert refused(url, auth_string, server.pid)
        finally:
            owner.kill()
    server.wait(timeout=200)


def test_named_api_that_does_not_answer() -> None:
    words = r"^the Prefect API at http://127.0.0.1:1/api does not answer within 0 s: .*unset PREFECT_API_URL"
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}), pytest.raises(ConfigError, match=words):
        check_named_api(0)


def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(text)
    monkeypatch.setattr(monitor, "PROGRAM", path)


def test_server_that_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "raise SystemExit('no such table')")
    server = LocalPrefectServer()
    with pytest.raises(RoleFailedError, match=r"the local Prefect server failed: .*its log ends with:\nno such table"):
        server.wait()
    server.close()


def test_server_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "import sys; sys.stdin.read()")
    server = LocalPrefectServer()
    with pytest.raises(WaitTimeoutError, match=r"^the local Prefect server at http\S+ did not answer within 0.05 s$"):
        server.wait(timeout_secs=0.05)
    server.close()
    server.close()
    assert not psutil.pid_exists(server.pid)


def test_server_that_does_not_listen_to_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "import signal; signal.pause()")
    server = LocalPrefectServer()
    server.close(timeout_secs=0.05)
    assert not psutil.pid_exists(server.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_server_outlives_a_signal_that_is_for_the_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    program(tmp_path, monkeypatch, "import os, sys; sys.stdin.read(); os._exit(7)")
    server = LocalPrefectServer()
    os.kill(server.pid, number)
    server.close(timeout_secs=200)
    assert server._process._process.returncode == 7


@pytest.mark.cluster
def test_server_that_a_profile_makes_superfluous_leaves_and_touches_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    (tmp_path / "profiles.toml").write_text(
        'active = "ours"\n[profiles.ours]\nPREFECT_API_URL = "http://127.0.0.1:1/api"\n'
    )
    server = LocalPrefectServer()
    try:
        assert psutil.Process(server.pid).wait(timeout=200) == 0
    finally:
        server.close()
    assert not (tmp_path / "prefect.db").exists()


def test_server_that_is_not_needed_is_closed() -> None:
    server = SimpleNamespace(is_closed=False)
    server.close = lambda: setattr(server, "is_closed", True)
    with (
        temporary_settings({PREFECT_API_URL: "http://127.0.0.1:1/api"}),
        prefect_api(server),  # type: ignore[arg-type]
    ):
        assert server.is_closed
