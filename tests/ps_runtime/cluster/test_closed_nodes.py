from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Nanny

from psflow.ps_runtime.cluster.closed_nodes import ClosedNanny, quiet_logs


def test_the_level_comes_back_with_the_last_of_overlapping_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client")]
    for logger in loggers:
        monkeypatch.setattr(logger, "level", logging.INFO)
    first, second, of_clients = quiet_logs(), quiet_logs(), quiet_logs("distributed.client")
    seen = []
    for step in (
        first.__enter__,
        second.__enter__,
        of_clients.__enter__,
        lambda: first.__exit__(None, None, None),
        lambda: second.__exit__(None, None, None),
        lambda: of_clients.__exit__(None, None, None),
    ):
        step()
        seen.append(tuple(logging.getLevelName(logger.level) for logger in loggers))
    assert seen == [
        ("CRITICAL", "INFO"),
        ("CRITICAL", "INFO"),
        ("CRITICAL", "CRITICAL"),
        ("CRITICAL", "CRITICAL"),
        ("INFO", "CRITICAL"),
        ("INFO", "INFO"),
    ]


@pytest.mark.process
def test_a_process_that_dask_cannot_end_as_it_lost_sight_of_it_ends_with_its_nanny(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(nanny: Any) -> None:
        nanny.process = None
        raise AssertionError("Status.starting")

    monkeypatch.setattr(Nanny, "close", fail)
    nanny: Any = ClosedNanny.__new__(ClosedNanny)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            nanny.process = SimpleNamespace(process=SimpleNamespace(_process=process))
            with pytest.raises(AssertionError, match=r"^Status\.starting$"):
                asyncio.run(nanny.close())
        finally:
            process.communicate()  # one that was not killed reads the end of its input
    assert process.returncode == -signal.SIGKILL
