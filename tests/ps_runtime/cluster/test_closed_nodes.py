from __future__ import annotations

import logging

import pytest

from psflow.ps_runtime.cluster.closed_nodes import quiet_logs


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
