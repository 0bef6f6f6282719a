from __future__ import annotations

import threading
from types import SimpleNamespace
from uuid import uuid4

import pytest

from psflow.flows.stopping import interrupts as module
from psflow.flows.stopping.interrupts import CancellationWatch


def test_a_server_that_hangs_does_not_keep_the_block_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = threading.Event(), threading.Event()

    class Client:
        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read_flow_run(self, run_id: object) -> SimpleNamespace:
            asked.set()
            answers.wait()
            return SimpleNamespace(state=None)

    monkeypatch.setattr(module, "get_client", lambda sync_client: Client())
    monkeypatch.setattr(module, "flow_run", SimpleNamespace(id=str(uuid4()), root_flow_run_id=str(uuid4())))
    monkeypatch.setattr(module, "POLL_SECS", 0.0)
    monkeypatch.setattr(module, "JOIN_SECS", 0.01)
    with CancellationWatch(lambda: None) as watch:
        assert asked.wait(200)
    assert watch._thread.is_alive()
    answers.set()
    watch._thread.join(200)
    assert not watch._thread.is_alive()
