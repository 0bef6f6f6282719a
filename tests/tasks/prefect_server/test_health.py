from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from psflow.ps_runtime.errors import ConfigError
from psflow.tasks.connectivity import prefect_fault
from psflow.tasks.prefect_server.api import check_named_api, health_fault


class Silent:
    """An API that takes connections and never answers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"

    def num_asked(self) -> int:
        """Return how often it was asked since the last call."""
        self._listener.setblocking(False)
        asked = 0
        with suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()
                asked += 1
        return asked


@pytest.fixture
def silent() -> Iterator[Silent]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Silent(listener)


def test_api_that_takes_connections_and_never_answers_is_asked_once(silent: Silent) -> None:
    assert "timed out" in str(health_fault(silent.url, 0.2))
    assert silent.num_asked() == 1


def test_wait_for_a_silent_api_ends(silent: Silent) -> None:
    words = r"^the Prefect API at http\S+ does not answer within 0\.3 s: timed out; start it"
    with temporary_settings({PREFECT_API_URL: silent.url}), pytest.raises(ConfigError, match=words):
        check_named_api(0.3)


def test_question_about_a_silent_api_is_asked_once(silent: Silent) -> None:
    assert "does not answer: timed out" in str(prefect_fault(silent.url, 0.2))
    assert silent.num_asked() == 1


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
