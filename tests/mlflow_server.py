"""MLflow's own server, which a test can stop and start again at the same address."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.free_ports import free_port
from tests.limits import HANG_SECS

START_SECS = 280.0


class MlflowServer:
    """A server on a free loopback port; `stop` ends it, `start` brings it back.

    Parameters
    ----------
    store : str
        Address of what it serves.
    folder : Path
        For its artifacts and its log.
    """

    def __init__(self, store: str, folder: Path) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._log = folder / "server.log"
        self._command = [
            *(sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--workers", "1"),
            *("--artifacts-destination", str(folder / "served"), "--host", "127.0.0.1", "--port", str(self._port)),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with open(self._log, "a") as log:
            self._process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECS
        while not self._answers():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)  # it ends only if it fails
            is_coming_up = self._process.poll() is None and time.monotonic() < deadline
            assert is_coming_up, self._log.read_text()

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End it by a signal to all its processes. Idempotent."""
        if self._process is not None:
            os.killpg(self._process.pid, number)
            self._process.wait()
            self._process = None

    def suspend(self) -> None:
        """Let it take requests, and answer none."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=HANG_SECS)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
