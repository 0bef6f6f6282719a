"""The end of a watch: every step runs, even if another raises."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.flows.parameters.train import parse_parameters
from psflow.flows.reporting import watch as module
from psflow.flows.reporting.artifacts import Artifacts, PageLinks
from psflow.flows.reporting.plotting import Plotter
from psflow.flows.reporting.watch import Watch, Watched
from psflow.ps_runtime.roles.events import RoleLost

CONF = {
    "experiment": "t",
    "model": {"name": "m:line"},
    "input": {"train": {"name": "m:points"}, "eval": {"name": "m:points"}},
    "train": {"max_steps": 600},
}
LOST = RoleLost("its Dask worker tcp://h:1 was lost", role="worker-0")
ENDED = ["line", "progress in MLflow", "evaluations", "progress in Prefect", "plotter", "artifacts", "logs"]
"""In this order."""


class Ends:
    """Stands for all that a watch tells: notes what is told and closed at its end, and fails where it is to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.seen: list[str] = []
        self.draws: bool | None = None
        self.failures: dict[str, BaseException] = {}
        self.on_disk: Any = tuple
        self._path = tmp_path
        monkeypatch.setattr(module, "SLICE_SECS", 200)
        monkeypatch.setattr(module, "TerminalLine", self._line)
        monkeypatch.setattr(module, "SystemMetrics", lambda: SimpleNamespace(sample=dict))
        monkeypatch.setattr(module, "Artifacts", self._artifacts)
        monkeypatch.setattr(module, "Plotter", lambda *given: SimpleNamespace(close=self._close_plotter))
        logs = SimpleNamespace(close=lambda: self.end("logs"))
        monkeypatch.setattr(module, "RoleLogs", SimpleNamespace(of=lambda model_dir: logs))

    def end(self, what: str, *_: object) -> None:
        self.seen.append(what)
        if what in self.failures:
            raise self.failures[what]

    def watch(self) -> Watch:
        job: Any = SimpleNamespace(model_dir=str(self._path), attempt=1, train_spec=SimpleNamespace(max_steps=600))
        tracker: Any = SimpleNamespace(
            put_tags=lambda tags: self.end("progress in MLflow"),
            handle=lambda event: None,
            put_file=lambda file, content: None,
            run_id="r1",
            tags={},
            newest_step=-1,
            page=None,
        )
        links = PageLinks("f1", None, None, str(self._path), "m")
        watched = Watched(job, parse_parameters(CONF, {}), None, links, lambda: self.on_disk())
        return Watch(watched, tracker, logging.getLogger("flow"))

    def _line(self) -> Any:
        ends = self

        class Line:
            is_shown = False

            def show(self, line: str) -> None:
                pass

            def __enter__(self) -> Line:
                return self

            def __exit__(self, *_: object) -> None:
                ends.end("line")

        return Line()

    def _artifacts(self, name: str) -> Any:
        return SimpleNamespace(
            label=lambda **labels: None,
            progress=lambda *given: self.end("progress in Prefect"),
            table=lambda *given: self.end("evaluations"),
            close=lambda secs: self.end("artifacts"),
        )

    def _close_plotter(self, secs: float, *, draws: bool) -> None:
        self.draws = draws
        self.end("plotter")


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ends:
    return Ends(monkeypatch, tmp_path)


def test_all_of_the_end_happens_in_its_order(ends: Ends) -> None:
    with ends.watch():
        pass
    assert ends.seen == ENDED
    assert ends.draws


@pytest.mark.parametrize("what", ENDED)
def test_an_interruption_of_one_part_leaves_the_others(ends: Ends, what: str) -> None:
    ends.failures = {what: KeyboardInterrupt(), "logs": KeyboardInterrupt("later")}
    with pytest.raises(KeyboardInterrupt) as caught, ends.watch():
        pass
    assert caught.value is ends.failures[what]
    assert ends.seen == ENDED
    assert ends.draws == (what in ENDED[4:])  # who interrupts does not wait for plots


@pytest.mark.parametrize(("error", "counts"), [(None, OSError), (ZeroDivisionError(), ZeroDivisionError)])
def test_a_loss_that_cannot_be_caught_up_with_does_not_hide_what_ended_the_block(
    ends: Ends, error: Exception | None, counts: type[Exception]
) -> None:
    def damaged() -> None:
        raise OSError("No such device")

    def watched() -> None:
        with ends.watch() as watch:
            watch.handle(LOST)
            ends.on_disk = damaged
            if error is not None:
                raise error

    with pytest.raises(counts):
        watched()
    assert ends.seen == ENDED


def test_a_watch_that_cannot_read_what_is_on_disk_closes_what_it_has_begun(ends: Ends) -> None:
    def damaged() -> None:
        raise OSError("No such device")

    ends.on_disk = damaged
    with pytest.raises(OSError, match="No such device"), ends.watch():
        pass
    assert ends.seen == ["plotter", "artifacts", "logs"]
    assert ends.draws is False


def test_a_watch_whose_thread_does_not_start_shows_no_line_any_more(ends: Ends) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    watch: Any = ends.watch()
    watch._thread = SimpleNamespace(start=refuse)
    with pytest.raises(RuntimeError, match="can't start"), watch:
        pass
    assert ends.seen == ["line", "plotter", "artifacts", "logs"]


def test_a_watch_that_does_not_begin_leaves_no_thread(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged() -> None:
        raise OSError("No such device")

    made: list[Any] = []

    def noted(type_: Any) -> Any:
        return lambda *given: made.append(type_(*given)) or made[-1]

    ends.on_disk = damaged
    monkeypatch.setattr(module, "Artifacts", noted(Artifacts))
    monkeypatch.setattr(module, "Plotter", noted(Plotter))
    with pytest.raises(OSError, match="No such device"), ends.watch():
        pass
    assert [type(one) for one in made] == [Artifacts, Plotter]
    for one in made:
        one._thread.join(200)
        assert not one._thread.is_alive()


def test_who_does_not_wait_for_the_thread_closes_the_rest(ends: Ends) -> None:
    def interrupt(timeout_secs: float | None = None) -> None:
        raise KeyboardInterrupt

    watch: Any = ends.watch()
    with pytest.raises(KeyboardInterrupt), watch:
        thread, watch._thread = watch._thread, SimpleNamespace(join=interrupt)
    thread.join()
    assert ends.seen == ENDED


def test_a_store_that_hangs_does_not_keep_the_watch(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, goes_on = threading.Event(), threading.Event()

    def hanging() -> tuple[()]:
        has_begun.set()
        goes_on.wait()
        return ()

    monkeypatch.setattr(module, "SLICE_SECS", 0.001)
    monkeypatch.setattr(module, "JOIN_SECS", 0.01)
    watch = ends.watch()
    with watch:
        ends.on_disk = hanging
        watch.handle(LOST)
        assert has_begun.wait(200)
        ends.seen.clear()  # the thread has told of the progress
    assert watch._thread.is_alive()
    assert ends.seen == ENDED
    goes_on.set()
    watch._thread.join(200)
    assert not watch._thread.is_alive()
