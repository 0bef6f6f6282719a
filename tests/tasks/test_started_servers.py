"""Records of servers, and processes that do not match them. No server runs here."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_AUTH_STRING

from psflow.ps_runtime.checkpoint.process import ProcessId
from psflow.ps_runtime.errors import ConfigError, RoleFailedError, WaitTimeoutError
from psflow.tasks import local_servers
from psflow.tasks.local_servers import bring_up, end_servers, take_down
from psflow.tasks.prefect_server.api import client_settings
from psflow.tasks.started_servers import FILE, StartedServer, found, read_started, record_lock, write_started

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example:5000")
    return tmp_path / "home"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that ignores SIGTERM."""
    code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def server(pid: int) -> StartedServer:
    return StartedServer("prefect", "http://127.0.0.1:1", "home", "log", ProcessId.of(pid), "psflow:secret")


def test_nothing_is_up_where_nothing_was_started(home: Path) -> None:
    assert found().prefect_api_url is None
    assert take_down() == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"kind": "prefect"}]', "nonsense"])
def test_a_damaged_file_is_as_none(home: Path, text: str) -> None:
    home.mkdir()
    (home / FILE).write_text(text)
    assert read_started() == []
    assert take_down() == []


def test_who_finds_servers_knows_their_passwords_and_no_other_user_can_read_them(
    home: Path, process: subprocess.Popen[bytes]
) -> None:
    prefect = server(process.pid)
    mlflow = replace(prefect, kind="mlflow", url="http://127.0.0.1:2", serves="sqlite:////a/mlflow.db")
    with record_lock(1):
        write_started([prefect, mlflow, replace(mlflow, url="http://127.0.0.1:3", serves="s", auth_string=None)])
    files = [home, *home.iterdir()]
    assert {path.name for path in files if path.stat().st_mode & 0o077} == set()
    known = found()
    assert (known.prefect_api_url, known.prefect_auth_string) == ("http://127.0.0.1:1/api", "psflow:secret")
    stores = ("sqlite:////a/mlflow.db", "http://127.0.0.1:2/", "http://localhost:2", "s", "http://127.0.0.1:9")
    address = "http://psflow:secret@127.0.0.1:2"
    assert [known.mlflow_uri(store) for store in stores] == [address, address, address, "http://127.0.0.1:3", None]
    for url in ("http://127.0.0.1:1/api", "http://localhost:1/api"):
        assert client_settings(url)[PREFECT_API_AUTH_STRING] == "psflow:secret"
    assert PREFECT_API_AUTH_STRING not in client_settings("http://127.0.0.1:2/api")


@pytest.mark.parametrize("with_password", [True, False])
def test_a_server_that_is_up_is_not_taken_for_one_with_another_password_policy(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, home: Path, with_password: bool
) -> None:
    monkeypatch.setattr(local_servers, "named_api_url", lambda: None)
    up = replace(server(process.pid), serves=str(home), auth_string=None if with_password else "psflow:secret")
    with record_lock(1):
        write_started([up])
    asks = "asks for no password" if with_password else "asks for a password"
    with pytest.raises(
        ConfigError, match=rf"the Prefect server at http://127.0.0.1:1 is running and {asks}; .*psflow down"
    ):
        bring_up(1, with_password=with_password)


def test_a_process_that_got_the_pid_of_a_server_is_left_alone(process: subprocess.Popen[bytes]) -> None:
    alive = server(process.pid)
    stale = replace(alive, process=replace(alive.process, started=alive.process.started - 1))
    with record_lock(1):
        write_started([stale])
    assert found().prefect_api_url is None
    assert take_down() == []
    assert process.poll() is None
    assert read_started() == []


def test_servers_of_another_host_are_neither_used_nor_stopped_nor_forgotten(process: subprocess.Popen[bytes]) -> None:
    alive = server(process.pid)
    elsewhere = replace(alive, process=replace(alive.process, host="other", boot="other"))
    with record_lock(1):
        write_started([elsewhere])
    assert found().prefect_api_url is None
    assert take_down() == []
    assert process.poll() is None
    assert read_started() == [elsewhere]


def test_a_server_that_does_not_end_well_is_killed(process: subprocess.Popen[bytes]) -> None:
    end_servers([server(process.pid)], 0.05)
    assert process.poll() is not None


def test_waiting_for_another_command_is_reported(home: Path) -> None:
    with (
        record_lock(1),
        pytest.raises(
            WaitTimeoutError, match=r"^another psflow up or psflow down did not end within 0\.01 s: it holds"
        ),
    ):
        take_down(0.01)


def test_a_home_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ConfigError, match=r"file/home cannot be written to: Not a directory; .*set PREFECT_HOME"):
        take_down(1)


@pytest.mark.parametrize(
    ("program", "error", "words"),
    [
        (
            "print('no such table')",
            RoleFailedError,
            r"the Prefect server failed: its process ended before it answered; .*log ends with:\nno such table",
        ),
        (
            "import time; print('migrating', flush=True); time.sleep(60)",
            WaitTimeoutError,
            r"the Prefect server at http://\S+:\d+ did not answer within 1 s: timed out; .*log ends with:\nmigrating",
        ),
    ],
)
def test_a_server_that_does_not_come_up_is_reported_with_its_log_and_forgotten(
    monkeypatch: pytest.MonkeyPatch, program: str, error: type[Exception], words: str
) -> None:
    monkeypatch.setattr(local_servers, "named_api_url", lambda: None)
    monkeypatch.setattr(local_servers, "_program", lambda *_: (["-c", program], {}))
    with pytest.raises(error, match=words):
        bring_up(1, {"prefect": 0})
    assert read_started() == []


def test_what_the_environment_names_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_servers, "named_api_url", lambda: "http://prefect.example/api")
    endpoints = bring_up(1)
    assert (endpoints.prefect, endpoints.mlflow) == ("http://prefect.example/api", "http://mlflow.example:5000")
    assert read_started() == []
