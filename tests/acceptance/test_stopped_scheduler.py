"""Questions to the scheduler of a real cluster with TLS, which is stopped for longer than Dask tries to connect."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from psflow.ps_runtime.client.shard_client import never_stop
from psflow.ps_runtime.cluster.own_security import own_security
from psflow.ps_runtime.cluster.scheduler_rpc import ask
from tests.acceptance.test_lost_roles import dask_process
from tests.free_ports import free_port

pytestmark = [pytest.mark.piece(number=4), pytest.mark.timeout(300), pytest.mark.cluster]

CONNECT_SECS = 0.5
"""For which Dask tries to connect; 30 by default."""
NUM_QUESTIONS = 8
"""At once, each by a connection of its own: there are not that many when the scheduler is stopped."""


def test_all_questions_are_answered_when_it_goes_on(tmp_path: Path) -> None:
    security: Any = own_security()
    names = {
        "--tls-ca-file": security.tls_ca_file,
        "--tls-cert": security.tls_scheduler_cert,
        "--tls-key": security.tls_scheduler_key,
    }
    files: list[str] = []
    for option, content in names.items():
        path = tmp_path / f"{option.strip('-')}.pem"
        path.write_text(content)
        files += [option, str(path)]
    address = f"tls://127.0.0.1:{free_port()}"
    common = ["--no-dashboard", "--host", address.rpartition(":")[0], "--port", address.rpartition(":")[2]]
    with (
        dask_process(tmp_path, "scheduler", *common, *files) as scheduler,
        Client(address, security=security, timeout=60) as client,
        ThreadPoolExecutor(NUM_QUESTIONS) as asking,
    ):
        client.rpc.timeout = CONNECT_SECS
        scheduler.send_signal(signal.SIGSTOP)
        answers = [
            asking.submit(ask, client, lambda scheduler: scheduler.ncores(), never_stop) for _ in range(NUM_QUESTIONS)
        ]
        time.sleep(4 * CONNECT_SECS)
        are_done = [answer.done() for answer in answers]
        scheduler.send_signal(signal.SIGCONT)
        assert not any(are_done)
        assert [answer.result(60) for answer in answers] == [{}] * NUM_QUESTIONS
