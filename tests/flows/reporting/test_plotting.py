"""Times and contents of plots of a running job."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from psflow.flows.reporting import plotting as module
from psflow.flows.reporting.plotting import Curves, Plotter
from psflow.ps_runtime.roles.events import Evaluation, Export, Metrics

JOB: Any = SimpleNamespace(model_dir="d")
DATASET: Any = object()


def loss(step: int, value: float) -> Metrics:
    return Metrics(step, {"loss": value, "steps_per_sec": 1.0})


def evaluation(step: int, name: str | None = None, **values: float) -> Evaluation:
    return Evaluation(step, values, 1.0, name)


def export(step: int, *, best: bool = True) -> Export:
    return Export("best", step, 1, f"best/{step}", best, {})


class Studio:
    """Stands for the drawing, which tests of the plots show: what is drawn, and what came of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.curves: list[tuple[Any, ...]] = []
        self.scored: list[str] = []
        self.files: list[str] = []
        self.is_drawn = threading.Event()
        monkeypatch.setattr(module, "learning_curves", self.draw)
        monkeypatch.setattr(module, "class_scores", self.score)
        monkeypatch.setattr(module, "classifier_plots", lambda scores, title: {"roc.png": b""})

    def draw(self, *given: Any) -> bytes:
        self.curves.append(given)
        return b""

    def score(self, job: Any, export: str, dataset: Any, is_given_up: Callable[[], bool]) -> str:
        self.scored.append(export)
        return "scores"

    def plotter(self, loss_before: Any = None, dataset: Any = DATASET) -> Plotter:
        return Plotter(JOB, dataset, self.put, loss_before)

    def put(self, file: str, content: bytes) -> None:
        self.files.append(file)
        self.is_drawn.set()


@pytest.fixture
def studio(monkeypatch: pytest.MonkeyPatch) -> Studio:
    return Studio(monkeypatch)


def test_a_short_job_is_drawn_once_at_its_end(studio: Studio) -> None:
    plotter = studio.plotter()
    for event in (loss(100, 0.5), evaluation(0, loss=2.0), export(0), loss(200, 0.4), evaluation(200, loss=1.0)):
        plotter.handle(event)
    plotter.handle(export(200))
    plotter.close(200)
    plotter.close(200)
    assert studio.curves == [([(100, 0.5), (200, 0.4)], {"eval": {"loss": [(0, 2.0), (200, 1.0)]}}, 200)]
    assert studio.scored == ["best/200"]
    assert studio.files == ["plots/learning_curves.png", "plots/roc.png"]


def test_a_long_job_is_drawn_after_a_best_too(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_SECS", 0.0)
    plotter = studio.plotter()
    plotter.handle(evaluation(0, loss=2.0))
    plotter.handle(export(0, best=False))
    assert not studio.is_drawn.wait(0.05)
    plotter.handle(export(0))
    assert studio.is_drawn.wait(200)
    plotter.close(200)
    assert studio.scored == ["best/0"]


def test_where_there_is_nothing_new_nothing_is_drawn(studio: Studio) -> None:
    plotter = studio.plotter()
    plotter.restore(evaluation(100, loss=2.0))
    plotter.restore(export(100))
    plotter.close(200)
    assert studio.files == []


def test_a_resumed_job_has_the_curve_of_its_earlier_attempts(studio: Studio) -> None:
    plotter = studio.plotter(lambda: [(100, 3.0), (200, 2.0)])
    plotter.restore(evaluation(200, loss=2.5))
    plotter.restore(export(200))
    for event in (loss(200, 7.0), loss(300, 1.0), evaluation(300, loss=2.6)):
        plotter.handle(event)
    plotter.close(200)
    [(training, evaluations, best)] = studio.curves
    assert training == [(100, 3.0), (200, 7.0), (300, 1.0)]
    assert (evaluations, best) == ({"eval": {"loss": [(200, 2.5), (300, 2.6)]}}, 200)
    assert studio.scored == []  # its best is drawn already


def test_a_job_that_was_interrupted_is_not_drawn(studio: Studio) -> None:
    plotter = studio.plotter()
    plotter.handle(evaluation(100, loss=2.0))
    plotter.close(200, draws=False)
    assert studio.files == []


def test_plots_that_take_too_long_are_given_up_before_the_process_ends(
    studio: Studio, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has_begun = threading.Event()
    at_exit: list[tuple[Any, ...]] = []

    def predict_slowly(job: Any, export: str, dataset: Any, is_given_up: Callable[[], bool]) -> str:
        has_begun.set()
        while not is_given_up():
            time.sleep(0.01)
        return "scores"

    monkeypatch.setattr(module, "FIRST_SECS", 0.0)
    monkeypatch.setattr(module, "class_scores", predict_slowly)
    monkeypatch.setattr(atexit, "register", lambda *given: at_exit.append(given))
    plotter = studio.plotter()
    plotter.handle(export(100))
    assert has_begun.wait(200)
    plotter.close(0)
    [(join, timeout_secs)] = at_exit
    join(200)
    assert not plotter._thread.is_alive()
    assert timeout_secs == module.CANCEL_SECS
    assert studio.files == ["plots/learning_curves.png"]
    assert caplog.messages == ["plots may be missing in MLflow: they were not drawn within 0 s"]


def test_plots_are_given_up_also_if_the_wait_for_them_is_interrupted(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(timeout_secs: float) -> None:
        raise KeyboardInterrupt

    plotter = studio.plotter()
    monkeypatch.setattr(plotter._thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        plotter.close(200)
    assert plotter._is_given_up.is_set()


def test_an_input_that_is_no_data_set_has_learning_curves_alone(studio: Studio) -> None:
    plotter = studio.plotter(dataset=None)
    plotter.handle(evaluation(100, loss=2.0))
    plotter.handle(export(100))
    plotter.close(200)
    assert studio.files == ["plots/learning_curves.png"]


@pytest.mark.parametrize(("error", "has_trace"), [(RuntimeError("no font"), True), (OSError("no file"), False)])
def test_what_fails_is_logged_once(
    studio: Studio,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    has_trace: bool,
) -> None:
    def fail(*given: Any) -> None:
        raise error

    monkeypatch.setattr(module, "learning_curves", fail)
    monkeypatch.setattr(module, "class_scores", fail)
    plotter = studio.plotter(fail)
    plotter.handle(evaluation(100, loss=2.0))
    plotter.handle(export(100))
    plotter.close(200)
    [record] = caplog.records
    assert record.getMessage() == f"could not draw a plot: {error}"
    assert bool(record.exc_info) == has_trace


def test_a_long_curve_is_thinned_and_keeps_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = Curves()
    for step in range(20_000):
        curves.handle(loss(step, 1.0))
    assert module.MAX_POINTS / 2 <= len(curves.loss) <= module.MAX_POINTS
    assert min(curves.loss) == 0
    assert max(curves.loss) == 19_999
