from __future__ import annotations

import gc
import threading
import time

import pytest

from psflow.flows import head_start as module
from psflow.flows.head_start import head_start
from psflow.ps_runtime import collector
from psflow.ps_runtime.collector import collector_at_rest
from tests.limits import HANG_SECS


class Server:
    """Stands for the local Prefect server."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for thread in threading.enumerate():
        if thread.name == "psflow-mlflow-import":  # of an earlier test; the collector rests meanwhile
            thread.join(HANG_SECS)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(module, "LocalPrefectServer", Server)


def test_a_server_comes_up_for_the_time_of_the_block() -> None:
    before = time.monotonic()
    with head_start() as begun:
        assert before <= begun.began_at <= time.monotonic()
        assert isinstance(begun.server, Server)
        assert not begun.server.is_closed
    assert begun.server.is_closed


def test_no_server_where_a_variable_names_an_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    with head_start() as begun:
        assert begun.server is None


def test_one_head_start_within_another_is_the_same() -> None:
    with head_start(began_at=5.0) as outer:
        with head_start() as inner:
            assert inner is outer
        assert isinstance(outer.server, Server)
        assert not outer.server.is_closed


def test_the_garbage_collector_works_again_if_nothing_comes_of_it() -> None:
    with head_start():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_garbage_collector_works_again_as_soon_as_a_flow_begins() -> None:
    with head_start() as begun:
        begun.rest.close()
        assert gc.isenabled()


def test_the_garbage_collector_rests_until_the_last_thread_lets_it_work() -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def rest() -> None:
        with collector_at_rest():
            has_begun.set()
            assert may_end.wait(HANG_SECS)

    other = threading.Thread(target=rest, daemon=True)
    with head_start() as begun:
        other.start()
        assert has_begun.wait(HANG_SECS)
        begun.rest.close()
        assert not gc.isenabled()
    may_end.set()
    other.join(HANG_SECS)
    assert gc.isenabled()


def test_the_process_of_a_command_leaves_out_what_it_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    monkeypatch.setattr(collector, "_freezes", False)
    with collector_at_rest():
        pass
    assert frozen == []
    collector.freeze_after_rests()
    with collector_at_rest(), collector_at_rest():
        pass
    assert frozen == [False]


def test_a_child_that_is_forked_while_another_thread_rests_collects_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    with collector_at_rest():
        collector._begin_anew()  # as in the child
        assert gc.isenabled()
        with collector_at_rest():
            assert not gc.isenabled()
        assert gc.isenabled()
    assert gc.isenabled()


def test_the_garbage_collector_works_again_if_the_server_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(module, "LocalPrefectServer", fail)
    with pytest.raises(OSError, match="no more processes"), head_start():
        pass
    assert gc.isenabled()


def test_a_garbage_collector_that_the_caller_has_stopped_stays_so() -> None:
    gc.disable()
    try:
        with head_start() as begun:
            begun.rest.close()
        assert not gc.isenabled()
    finally:
        gc.enable()
