"""Plots of a run: learning curves and classifier plots."""

from __future__ import annotations

import io
import math
import shutil
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from matplotlib import image
from matplotlib.figure import Figure

from psflow import (
    DNNClassifier,
    Estimator,
    EstimatorSpec,
    GradientDescent,
    LinearClassifier,
    ModeKeys,
    RunConfig,
    embedding_lookup,
    get_variable,
)
from psflow.ps_runtime.checkpoint.reader import CheckpointReader
from psflow.ps_runtime.checkpoint.store import CheckpointStore
from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import schema_of
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.data.record_input import RecordInput
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.model.evaluation import read_values
from psflow.ps_runtime.model.export.bundle import ExportBundle
from psflow.ps_runtime.model.training import EvalSpec, TrainSpec
from psflow.ps_runtime.roles.job_spec import JobSpec
from psflow.tasks import plots
from psflow.tasks import plots as curves
from psflow.tasks import plots as module
from psflow.tasks.exports.code import source_of
from psflow.tasks.exports.writer import _write_model
from psflow.tasks.plots import ClassScores, class_scores, classifier_plots, learning_curves


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Every figure that is turned into an image."""
    drawn: list[Figure] = []

    def png(figure: Figure) -> bytes:
        drawn.append(figure)
        return original(figure)

    original = plots.png
    for user in (curves, plots):
        monkeypatch.setattr(user, "png", png)
    return drawn


def size(content: bytes) -> tuple[int, ...]:
    return tuple(image.imread(io.BytesIO(content), format="png").shape[:2])


def lines(figure: Figure) -> list[dict[str, int]]:
    """Return, for each panel, how many points each named line has."""
    return [{str(line.get_label()): len(line.get_xdata()) for line in axes.lines} for axes in figure.axes]


def test_learning_curves_of_all_evaluations(drawn: list[Figure]) -> None:
    training = [(step, 1.0) for step in range(0, 1000, 100)]
    first = {"loss": [(300, 0.5), (0, 1.0)], "accuracy": [(0, 0.1), (300, 0.9)]}
    content = learning_curves(training, {"eval": first, "held_out": {"loss": [(0, 2.0)]}}, best=300)
    assert min(size(content)) > 100
    [figure] = drawn
    assert [axes.get_title() for axes in figure.axes] == ["loss", "accuracy"]
    assert lines(figure) == [{"train": 10, "eval": 2, "held_out": 1, "best, 300": 2}, {"eval": 2, "best, 300": 2}]


@pytest.mark.parametrize("metrics", [0, 1, 40])
def test_learning_curves_of_few_and_many_metrics(drawn: list[Figure], metrics: int) -> None:
    learning_curves([], {"eval": {f"m{i}": [(0, 0.0)] for i in range(metrics)}}, best=None)
    assert len(drawn[0].axes) == 1 + min(metrics, curves.MAX_METRICS)


def test_learning_curves_of_what_is_not_finite(drawn: list[Figure]) -> None:
    learning_curves([(0, math.nan)], {"eval": {"loss": [(0, math.inf), (300, 0.5)], "m": [(0, math.nan)]}}, best=300)
    assert lines(drawn[0])[0] == {"train": 1, "eval": 2, "best, 300": 2}


def scores(num_classes: int, *, missing: int | None = None, rows: int = 200) -> ClassScores:
    random = np.random.default_rng(1)
    labels = random.integers(0, num_classes, rows)
    if missing is not None:
        labels[labels == missing] = (missing + 1) % num_classes
    probabilities = random.dirichlet(np.ones(num_classes), rows)
    return ClassScores(labels, probabilities)


def test_two_classes_have_one_curve(drawn: list[Figure]) -> None:
    made = classifier_plots(scores(2), "step 3")
    assert list(made) == ["confusion_matrix.png", "roc.png", "precision_recall.png"]
    assert all(min(size(content)) > 100 for content in made.values())
    confusion, roc, _ = drawn
    assert confusion.axes[0].get_title() == "step 3"
    assert len(roc.axes[0].lines) == 1


def test_each_class_against_the_rest_as_far_as_it_is_there(drawn: list[Figure]) -> None:
    classifier_plots(scores(5, missing=2), "t")
    names = [str(line.get_label()).partition(" (")[0] for line in drawn[1].axes[0].lines]
    assert names == ["class 0", "class 1", "class 3", "class 4"]


def test_one_class_alone_has_no_curve(drawn: list[Figure]) -> None:
    assert list(classifier_plots(scores(2, missing=1), "t")) == ["confusion_matrix.png"]


def test_many_classes_stay_readable(drawn: list[Figure]) -> None:
    classifier_plots(scores(50, rows=2000), "t")
    assert not drawn[0].axes[0].texts
    assert len(drawn[1].axes[0].lines) == plots.MAX_CURVES


def blobs() -> Dataset:
    random = np.random.default_rng(2)
    labels = np.arange(100) % 3
    x = (random.normal(size=(100, 3)) * 0.1 + np.eye(3)[labels]).astype(np.float32)
    return Dataset({"x": x}, labels).batch(16)


def test_scores_of_an_export_whose_checkpoint_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = GradientDescent(learning_rate=0.5)
    estimator = DNNClassifier([8], None, 3, optimizer, str(tmp_path), RunConfig(tf_random_seed=1))
    estimator.train(lambda: blobs().repeat(), max_steps=60)
    accuracy_then = estimator.evaluate(blobs, steps=None)["accuracy"]
    job = job_of(estimator, EvalSpec(blobs, steps=None))
    export = exported(estimator, tmp_path / "export" / "best" / "1")
    shutil.rmtree(tmp_path / "checkpoints")
    found = class_scores(job, export, blobs())
    assert found is not None
    np.testing.assert_array_equal(found.labels, np.arange(100) % 3)
    accuracy = (found.probabilities.argmax(axis=1) == found.labels).mean()
    assert accuracy == accuracy_then
    monkeypatch.setattr(module, "MAX_ROWS", 20)
    few = class_scores(job, export, blobs())
    assert few is not None
    np.testing.assert_array_equal(few.probabilities, found.probabilities[:20])
    looks = iter([False, True])
    assert class_scores(job, export, blobs(), lambda: next(looks)) is None
    assert next(looks, None) is None
    with pytest.raises(FileNotFoundError, match=r"best/2/artifacts/model/config\.json"):
        class_scores(job, str(tmp_path / "export" / "best" / "2"), blobs())


def test_scores_of_an_export_with_a_table(tmp_path: Path) -> None:
    estimator = Estimator(words, str(tmp_path), RunConfig(tf_random_seed=1))
    estimator.train(word_ids, max_steps=4)
    with Attempt(estimator, TrainSpec(word_ids, 4), EvalSpec(word_ids, steps=None)) as attempt:
        job = attempt.job()
    found = class_scores(job, exported(estimator, tmp_path / "export" / "best" / "1"), word_ids())
    assert found is not None
    probabilities = [row["probabilities"] for row in estimator.predict(word_ids)]
    np.testing.assert_array_equal(found.probabilities, probabilities)


def words(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    rows = embedding_lookup("t", features["ids"], 10, 2) + get_variable("bias", (2,))
    total = anp.sum(anp.exp(rows), axis=1, keepdims=True)
    probabilities = anp.exp(rows) / total
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"probabilities": probabilities})
    loss = -anp.mean(anp.log(probabilities[anp.arange(len(labels)), labels]))
    return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(learning_rate=0.1).minimize(loss))


def word_ids() -> Dataset:
    ids = np.arange(8)
    return Dataset({"ids": ids}, ids % 2).batch(4)


def exported(estimator: Estimator, path: Path) -> str:
    """Export the latest checkpoint as an evaluator does; return the folder."""
    store = CheckpointStore(estimator.model_dir)
    step = store.steps()[-1]
    with CheckpointReader.pinned(store, step, "test") as reader:
        values = read_values(reader)
    features = {"x": np.zeros((1, 3), np.float32)}
    schema = schema_of(features, None)
    bundle = ExportBundle(
        "model", step, values, estimator.model_fn, dict(estimator.params), features, {}, {}, 0.0, schema
    )
    (path / "artifacts").mkdir(parents=True)
    _write_model(path / "artifacts" / "model", bundle, source_of(estimator.model_fn))
    return str(path)


def job_of(estimator: Estimator, eval_spec: EvalSpec) -> JobSpec:
    with Attempt(estimator, TrainSpec(lambda: blobs().repeat(), 60), eval_spec) as attempt:
        return attempt.job()


@pytest.mark.parametrize(
    ("shape", "labels", "is_classifier"),
    [
        ((16, 3), np.arange(16) % 3, True),
        ((16,), np.arange(16) % 2, True),
        ((16, 1), (np.arange(16) % 2).astype(float)[:, np.newaxis], True),
        ((16, 3), np.arange(16) % 4, False),
        ((16, 3), np.arange(16) / 3, False),
        ((16, 3), None, False),
        ((16, 3), np.array(["a"] * 16), False),
        ((16, 3, 2), np.arange(16) % 3, False),
    ],
)
def test_what_a_classifier_is(shape: tuple[int, ...], labels: Any, is_classifier: bool) -> None:
    found = module._batch_scores({"probabilities": np.full(shape, 0.25)}, labels)
    assert (found is not None) == is_classifier
    if found is not None:
        assert found.probabilities.shape == (16, max(2, np.prod(shape) // 16))
    assert module._batch_scores({"y": np.full(shape, 0.25)}, labels) is None


def test_labels_that_are_words_are_those_that_the_predictions_name() -> None:
    predictions = {"probabilities": np.full((2, 3), 0.25), "all_classes": np.array([["cat", "dog", "elk"]] * 2)}
    found = module._batch_scores(predictions, np.array([["elk"], ["cat"]]))
    assert found is not None
    assert (found.labels.tolist(), found.classes) == ([2, 0], ("cat", "dog", "elk"))
    assert module._batch_scores(predictions, np.array(["elk", "ant"])) is None


def test_classes_have_their_names(drawn: list[Figure]) -> None:
    made = scores(3)
    named = ClassScores(made.labels, made.probabilities, ("cat", "dog", "a word that is longer than most"))
    classifier_plots(named, "t")
    shown = ["cat", "dog", "a word that is long…"]
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == shown
    assert [str(line.get_label()).partition(" (")[0] for line in drawn[1].axes[0].lines] == [
        f"class {w}" for w in shown
    ]


def test_the_names_of_classes_are_the_words_of_the_label(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,w,pet\n" + "1,1,dog\n2,2,cat\n" * 8)

    def pets() -> RecordInput:
        return Csv(path=str(tmp_path / "t.csv"), label="pet", weight="w").read().batch(4)

    estimator = LinearClassifier(model_dir=str(tmp_path / "model"), config=RunConfig(tf_random_seed=1))
    estimator.train(pets, max_steps=2)
    with Attempt(estimator, TrainSpec(pets, 2), EvalSpec(pets, steps=None)) as attempt:
        job, evaluated = attempt.job(), attempt.plan.datasets["eval"]
    found = class_scores(job, exported(estimator, tmp_path / "export" / "best" / "1"), evaluated)
    assert found is not None
    assert found.classes == ("cat", "dog")
