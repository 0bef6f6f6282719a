"""Real servers, started once for this file: what comes later in it happens later to them."""

from __future__ import annotations

import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import prefect.settings
import psutil
import pytest

from psflow.tasks.basic_auth import authorization, with_auth
from psflow.tasks.connectivity import prefect_fault
from psflow.tasks.local_servers import Endpoints, bring_up, take_down
from psflow.tasks.prefect_server.api import named_api_url, prefect_api
from psflow.tasks.started_servers import StartedServer, found
from psflow.tasks.tracking.store import prepare_store
from tests.new_databases import copy_prefect_database

pytestmark = pytest.mark.process(shared=True)

TIMEOUT_SECS = 280


@pytest.fixture(scope="module", autouse=True)
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("servers")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("PREFECT_HOME", str(place / "prefect"))
        copy_prefect_database(place / "prefect")
        yield place
        take_down()


@pytest.fixture(scope="module")
def full_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


@pytest.fixture(scope="module")
def both(place: Path, full_port: int) -> list[Endpoints]:
    """Return what two calls at once return."""
    ports = {"prefect": full_port, "mlflow": full_port}
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(bring_up, TIMEOUT_SECS, ports) for _ in range(2)]
        return [call.result() for call in calls]


@pytest.fixture(scope="module")
def prefect(both: list[Endpoints]) -> StartedServer:
    assert isinstance(both[0].prefect, StartedServer)
    return both[0].prefect


@pytest.fixture(scope="module")
def mlflow(both: list[Endpoints]) -> StartedServer:
    assert isinstance(both[0].mlflow, StartedServer)
    return both[0].mlflow


def ask(server: StartedServer, path: str, auth_string: str | None = None) -> tuple[int, bytes]:
    headers = {} if auth_string is None else {"Authorization": authorization(auth_string)}
    try:
        with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers), timeout=100) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read()


def test_two_at_once_start_one_of_each(both: list[Endpoints], place: Path) -> None:
    assert both[0] == both[1]
    commands = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    staying = [command for command in commands if command.endswith(" stays")]  # not the one that tests here share
    assert sum("prefect_server/process.py" in command for command in staying) == 1
    assert sum("mlflow_program.py" in command for command in commands) == 1


def test_where_a_port_is_taken_another_one_is(prefect: StartedServer, mlflow: StartedServer, full_port: int) -> None:
    assert len({prefect.url, mlflow.url, f"http://127.0.0.1:{full_port}"}) == 3


def test_both_have_pages(prefect: StartedServer, mlflow: StartedServer) -> None:
    for server in (prefect, mlflow):
        assert ask(server, "/", server.auth_string)[0] == 200
    assert f'"api_url":"{prefect.url}/api"'.encode() in ask(prefect, "/ui-settings", prefect.auth_string)[1]


@pytest.mark.parametrize("auth_string", [None, "psflow:", "psflow:wrong"])
def test_who_does_not_know_the_password_gets_nothing(
    prefect: StartedServer, mlflow: StartedServer, auth_string: str | None
) -> None:
    paths = ("/", "/health", "/api/health", "/api/admin/version", "/ui-settings", "/api/2.0/mlflow/experiments/search")
    answers = {ask(server, path, auth_string) for server in (prefect, mlflow) for path in paths}
    assert answers == {(401, b"")}
    assert ask(prefect, "/", mlflow.auth_string)[0] == 401


def test_the_passwords_are_private(prefect: StartedServer, mlflow: StartedServer, place: Path) -> None:
    words = [str(server.auth_string).partition(":")[2].encode() for server in (prefect, mlflow)]
    files = [path for path in place.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    read = [Path(f"/proc/{server.process.pid}/cmdline") for server in (prefect, mlflow)]
    assert [path for path in [*files, *read] if any(word in path.read_bytes() for word in words)] == []


def test_flows_and_stores_find_them(
    prefect: StartedServer, mlflow: StartedServer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    store = f"sqlite:///{place}/mlflow.db"
    assert found().prefect_api_url == f"{prefect.url}/api"
    assert prepare_store() == prepare_store(store) == prepare_store(mlflow.url)
    assert prepare_store() == with_auth(mlflow.url, mlflow.auth_string)
    with prefect_api() as url:
        assert url == named_api_url() == f"{prefect.url}/api"
    assert ask(prefect, "/api/health", prefect.auth_string)[0] == 200  # it outlives who used it
    assert prefect_fault(f"{prefect.url}/api", TIMEOUT_SECS) is None  # also where a variable names it
    assert prepare_store("sqlite:///other.db") == f"sqlite:///{place}/other.db"


def test_one_that_died_is_started_again_and_the_other_one_stays(prefect: StartedServer, mlflow: StartedServer) -> None:
    os.kill(mlflow.process.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(mlflow.process.pid)], 200)
    assert found().mlflow == {}
    assert found().prefect_api_url is not None
    again = bring_up(TIMEOUT_SECS)
    assert again.prefect == prefect
    assert isinstance(again.mlflow, StartedServer)
    assert again.mlflow.process != mlflow.process
    assert again.mlflow.serves == mlflow.serves
    assert ask(again.mlflow, "/health", again.mlflow.auth_string)[0] == 200


def test_down_ends_them_and_once_more_does_nothing(prefect: StartedServer) -> None:
    ended = take_down()
    assert prefect in ended
    assert len(ended) == 2
    assert not any(psutil.pid_exists(server.process.pid) for server in ended)
    assert take_down() == []
    assert (found().prefect_api_url, dict(found().mlflow)) == (None, {})
