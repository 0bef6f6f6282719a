"""A training loop that feeds its own batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import psflow
from psflow.ps_runtime.checkpoint.records import read_finished
from psflow.ps_runtime.errors import ArgumentTypeError, InputError, UsageError


def line(features: Any, labels: Any, mode: str) -> psflow.EstimatorSpec:
    w = psflow.get_variable("w", initializer=0.0)
    loss = ((labels - w * features["x"]) ** 2).mean()
    psflow.summary.scalar("mean_x", np.mean(features["x"]))
    train_op = psflow.GradientDescent(0.1).minimize(loss, global_step=psflow.get_or_create_global_step())
    return psflow.EstimatorSpec(mode, loss=loss, train_op=train_op)


X, Y = psflow.placeholder(np.float32, [None], "x"), psflow.placeholder(np.float32, [None], "y")
FED = ({"x": X}, Y)


@pytest.fixture
def estimator(tmp_path: Path) -> psflow.Estimator:
    return psflow.Estimator(line, str(tmp_path))


def batch(size: int = 4, slope: float = 3.0) -> dict[Any, Any]:
    x = np.linspace(0.5, 1.5, size)
    return {X: x, Y: [slope * value for value in x]}


def test_a_loop_trains_on_the_batches_that_it_feeds(estimator: psflow.Estimator) -> None:
    with psflow.MonitoredTrainingSession(estimator, FED) as session:
        for size in range(1, 61):
            _, _, step = session.run(["train_op", "loss", "global_step"], feed_dict=batch(size))
            assert step == size
    assert estimator.get_variable_value("w") == pytest.approx(3, abs=1e-3)
    finished = read_finished(estimator.model_dir)
    assert finished is not None
    assert finished.final_step == 60


def test_without_the_train_op_a_batch_is_only_measured(estimator: psflow.Estimator) -> None:
    seen = []

    class Counting(psflow.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(run_context)

    with psflow.MonitoredTrainingSession(estimator, FED, [Counting()]) as session:
        session.run("train_op", batch(1))
        w = session.run("w", batch(1))
        found = session.run({"loss": "loss", "all": ["summaries", "global_step"]}, batch(2, 5.0))
    x = np.array([0.5, 1.5])
    assert found["loss"] == pytest.approx(np.mean((5 * x - w * x) ** 2), rel=1e-5)
    assert found["all"] == [{"mean_x": 1.0}, 1]
    assert estimator.get_variable_value("w") == w
    assert len(seen) == 1


def test_a_later_loop_continues_from_the_last_checkpoint(estimator: psflow.Estimator) -> None:
    for last in (3, 6):
        with psflow.MonitoredTrainingSession(estimator, FED) as session:
            for _ in range(3):
                step = session.run(["train_op", "global_step"], batch())[1]
        assert step == last


@pytest.mark.parametrize(
    ("feed", "error", "words"),
    [
        (None, UsageError, "feed_dict lacks placeholder 'x'"),
        ({X: [1.0]}, UsageError, "feed_dict lacks placeholder 'y'"),
        (batch() | {"z": 1}, UsageError, "feed_dict has 'z': its keys are placeholders, not their names"),
        ({X: [[1.0]], Y: [1.0]}, InputError, r"placeholder 'x' is fed shape \[1, 1\], expected \[rows\]"),
        ({X: 1.0, Y: [1.0]}, InputError, r"placeholder 'x' is fed shape \[\], expected \[rows\]"),
        ({X: ["a"], Y: [1.0]}, InputError, "placeholder 'x' is fed list: could not convert"),
        ({X: [1.0, 2.0], Y: [1.0]}, InputError, "the fed batch: .*1"),
        ({X: [], Y: []}, InputError, "the fed batch: .* at least one row"),
        ({X: [np.nan], Y: [1.0]}, InputError, r"batch 0 of feed_dict: features\['x'\] has 1 cell that is missing"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_the_loop_may_go_on(
    feed: Any, error: type[Exception], words: str, estimator: psflow.Estimator
) -> None:
    with psflow.MonitoredTrainingSession(estimator, FED) as session:
        with pytest.raises(error, match=words):
            session.run("train_op", feed)
        assert session.run(["train_op", "global_step"], batch()) == [None, 1]


def test_rows_that_are_not_finite_are_left_out_if_asked(estimator: psflow.Estimator) -> None:
    with psflow.MonitoredTrainingSession(estimator, FED, non_finite="drop") as session:
        assert session.run("mean_x", {X: [np.nan, 2.0], Y: [1.0, 1.0]}) == 2.0
        with pytest.raises(InputError, match="the fed batch has no row left without the rows that non_finite='drop'"):
            session.run("mean_x", {X: [np.nan], Y: [1.0]})


def test_only_a_fed_session_takes_a_feed_dict(estimator: psflow.Estimator) -> None:
    def rows() -> Any:
        return {"x": np.ones(3, np.float32)}, np.ones(3, np.float32)

    with (
        psflow.MonitoredTrainingSession(estimator, rows) as session,
        pytest.raises(UsageError, match="run: this session takes no feed_dict: its batches come from input_fn; pass"),
    ):
        session.run("loss", feed_dict=batch())


@pytest.mark.parametrize("fed", [(X, None), ({"x": X}, {"y": Y})])
def test_labels_may_be_absent_or_named(fed: Any, tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> psflow.EstimatorSpec:
        w = psflow.get_variable("w", initializer=1.0)
        x, y = (features, 0) if labels is None else (features["x"], labels["y"])
        loss = ((w * x - y) ** 2).mean()
        return psflow.EstimatorSpec(mode, loss=loss, train_op=psflow.GradientDescent(0.1).minimize(loss))

    values = {X: [1.0], Y: [0.0]} if fed[1] else {X: [1.0]}
    with psflow.MonitoredTrainingSession(psflow.Estimator(model_fn, str(tmp_path)), fed) as session:
        assert session.run(["loss", "train_op"], values) == [1.0, None]


@pytest.mark.parametrize("fed", [(X, np.ones(3)), ({"x": 1}, Y), ({}, Y), (None, Y)])
def test_what_is_no_placeholder_is_refused(fed: Any, estimator: psflow.Estimator) -> None:
    with pytest.raises(ArgumentTypeError, match="of input_fn should be a placeholder, or a mapping of str to placehol"):
        psflow.MonitoredTrainingSession(estimator, fed)


def test_a_file_writer_records_what_the_loop_fetches(estimator: psflow.Estimator) -> None:
    recorded: list[Any] = []
    with psflow.MonitoredTrainingSession(estimator, FED) as session:
        session._session.step_session.report = lambda step, values: recorded.append((step, dict(values)))
        writer = psflow.summary.FileWriter(session)
        _, summary, step = session.run(["train_op", "summaries", "global_step"], batch())
        writer.add_summary(summary, step)
        with pytest.raises(ArgumentTypeError, match=r"record: values\['a'\] should be a number, got str 'b'"):
            writer.add_summary({"a": "b"}, step)
    assert (1, {"mean_x": 1.0}) in recorded


def test_a_placeholder_is_not_made_in_a_model_fn(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> psflow.EstimatorSpec:
        psflow.placeholder(np.float32, [None])
        raise AssertionError("it is refused")

    make: Callable[[], Any] = lambda: {"x": np.ones(2)}  # noqa: E731
    with pytest.raises(UsageError, match="placeholder: a model_fn takes its arrays as features and labels"):
        psflow.Estimator(model_fn, str(tmp_path)).train(make, steps=1)
