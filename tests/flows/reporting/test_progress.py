"""The progress line of a job."""

from __future__ import annotations

import pytest

from psflow.flows.reporting.progress import Progress, Rate
from psflow.ps_runtime.roles.events import Checkpoint, Evaluation, Export, FirstStep, Metrics, WorkersMissing


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def metrics(step: int, **values: float) -> Metrics:
    return Metrics(step, {"steps_per_sec": 1.0, **values})


def evaluation(step: int, name: str | None = None, **values: float) -> Evaluation:
    return Evaluation(step, values, 1.0, name)


def best(step: int, **values: float) -> Export:
    return Export("best", step, 1, "e", True, values)


def train(progress: Progress, clock: Clock, steps: int, every: int, rate: float) -> None:
    for _ in range(every, steps + 1, every):
        clock.now += every / rate
        progress.handle(metrics(progress.step + every, loss=0.5))


def test_line_of_a_job_under_way(clock: Clock) -> None:
    progress = Progress(1500, "accuracy", clock)
    assert progress.line() == "no step yet"
    train(progress, clock, 1000, 100, rate=50)
    progress.handle(evaluation(900, loss=0.25, accuracy=0.987654))
    progress.handle(best(900, accuracy=0.987654))
    assert progress.line() == (
        "step 1000/1500 (67 %), 50 steps/s, loss 0.5, evaluated 900: loss 0.25, accuracy 0.9877, "
        "best accuracy 0.9877 at 900, ETA 0:00:10"
    )
    clock.now += 4
    assert "ETA 0:00:06" in progress.line()


def test_line_at_the_end_has_no_eta(clock: Clock) -> None:
    progress = Progress(1000, "loss", clock)
    train(progress, clock, 1000, 100, rate=50)
    assert progress.line() == "step 1000/1000 (100 %), 50 steps/s, loss 0.5"
    assert progress.percent == 100


def test_training_until_the_data_end_has_no_eta(clock: Clock) -> None:
    progress = Progress(None, "loss", clock)
    train(progress, clock, 1000, 100, rate=50)
    assert progress.line() == "step 1000, 50 steps/s, loss 0.5"
    assert progress.percent is None


def test_no_eta_before_the_rate_has_settled(clock: Clock) -> None:
    progress = Progress(100_000, "loss", clock)
    train(progress, clock, 300, 100, rate=50)
    assert "ETA" not in progress.line()  # too few reports
    train(progress, clock, 500, 100, rate=200)
    assert "ETA" not in progress.line()  # it changes still
    train(progress, clock, 20_000, 100, rate=200)
    assert "200 steps/s" in progress.line()
    assert "ETA" in progress.line()


def test_reports_too_quick_to_build_on(clock: Clock) -> None:
    progress = Progress(100_000, "loss", clock)
    train(progress, clock, 4000, 100, rate=1000)
    assert "ETA" not in progress.line()


def test_a_ps_that_rolls_back_begins_a_new_window() -> None:
    rate = Rate()
    for second, step in enumerate((100, 200, 300, 150, 160)):
        rate.add(float(second), step)
    assert rate.per_sec() == 10


def test_rare_reports_still_make_a_rate() -> None:
    rate = Rate()
    for number in range(6):
        rate.add(600.0 * number, 100 * number)
    assert rate.per_sec() == pytest.approx(1 / 6)
    assert rate.remaining_secs(600, 3000.0) == pytest.approx(600)


def test_a_resumed_job_with_nothing_to_do(clock: Clock) -> None:
    progress = Progress(600, "loss", clock)
    progress.handle(Checkpoint(600, "c"))
    assert progress.line() == "step 600/600 (100 %)"


def test_named_evaluation_and_best_by_a_metric_that_it_lacks(clock: Clock) -> None:
    progress = Progress(600, "auc", clock)
    progress.handle(metrics(300))
    progress.handle(evaluation(300, "held_out", loss=1.0))
    progress.handle(best(300, loss=1.0))
    assert progress.line() == "step 300/600 (50 %), evaluated 300 on held_out: loss 1, best 300"


def test_first_step_is_that_of_the_first_replica() -> None:
    progress = Progress(600)
    for at in (5.0, 3.0, 4.0):
        progress.handle(FirstStep(role="worker-0", time=at))
    assert progress.first_step_at == 3.0


def test_line_says_how_many_workers_are_missing(clock: Clock) -> None:
    progress = Progress(1000, "loss", clock)
    progress.handle(WorkersMissing(2, 4))
    assert progress.line() == "no step yet, 2 of 4 workers missing"
    progress.handle(metrics(100, loss=0.5))
    progress.handle(WorkersMissing(1, 4))
    assert progress.line() == "step 100/1000 (10 %), loss 0.5, 1 of 4 workers missing"
    progress.handle(WorkersMissing(0, 4))
    assert progress.line() == "step 100/1000 (10 %), loss 0.5"
