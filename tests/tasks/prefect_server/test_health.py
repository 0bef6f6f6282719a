from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from psflow.ps_runtime.errors import WaitTimeoutError
from psflow.tasks.prefect_server.api import prefect_api
from psflow.tasks.prefect_server.health import health_fault
from psflow.tasks.reaching import prefect_fault


@pytest.fixture
def silent_url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/api"


def test_api_that_takes_connections_and_never_answers_is_asked_once(silent_url: str) -> None:
    begun = time.monotonic()
    assert "timed out" in str(health_fault(silent_url, 0.2))
    assert time.monotonic() - begun < 2


def test_wait_for_a_silent_api_ends_in_time(silent_url: str) -> None:
    begun = time.monotonic()
    with (
        temporary_settings({PREFECT_API_URL: silent_url}),
        pytest.raises(
            WaitTimeoutError, match=r"the Prefect API at http\S+ did not answer within 0\.3 s: timed out; start it"
        ),
        prefect_api(timeout_secs=0.3),
    ):
        pass
    assert time.monotonic() - begun < 4


def test_question_about_a_silent_api_ends_in_time(silent_url: str) -> None:
    begun = time.monotonic()
    assert "does not answer: timed out" in str(prefect_fault(silent_url, 0.2))
    assert time.monotonic() - begun < 2


def test_api_that_answers_has_no_fault() -> None:
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert health_fault(f"http://127.0.0.1:{server.server_port}/api", 5) is None
