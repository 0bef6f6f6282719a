"""Canned models on features that are ids: trained, resumed, evaluated and predicted in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow import (
    Adagrad,
    ColumnOptions,
    CrossOptions,
    Csv,
    Dataset,
    DNNClassifier,
    DNNRegressor,
    Estimator,
    EstimatorSpec,
    EvalSpec,
    GradientDescent,
    InputSchema,
    LinearClassifier,
    LinearRegressor,
    ModeKeys,
    RunConfig,
    TrainSpec,
    get_variable,
)
from psflow.ps_runtime.errors import InputError, ModelDirError, ModelFnError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.estimator.local import run_local
from psflow.ps_runtime.estimator.planning import plan_evaluations
from psflow.ps_runtime.model.kept_inputs import KeptInputs

RNG = np.random.default_rng(15)
WORDS = RNG.integers(0, 6, 120)
NUMBERS = RNG.normal(size=120).astype(np.float32)
EFFECT = np.float32([1.0, -2.0, 0.5, 3.0, -1.0, 0.0])
TARGETS = EFFECT[WORDS] + 0.5 * NUMBERS
CLASSES = (TARGETS > 0).astype(np.int64)
CONFIG = RunConfig(tf_random_seed=3, save_checkpoints_steps=10_000)
FEW, MANY = 6, 50_000


def records(labels: Any = TARGETS, num_ids: int = FEW, embedding: int = 0) -> Callable[[], Dataset]:
    words = WORDS * (num_ids // FEW)  # spread over all ids
    declared: Any = {"num_ids": {"word": num_ids}} | ({"embedding": {"word": embedding}} if embedding else {})
    return lambda: Dataset({"word": words, "x": NUMBERS}, labels, **declared).batch(40)


def repeated(input_fn: Callable[[], Dataset]) -> Callable[[], Dataset]:
    return lambda: input_fn().repeat()


@pytest.mark.parametrize("num_ids", [FEW, MANY])
def test_a_linear_regressor_finds_the_effect_of_each_id(num_ids: int, tmp_path: Path) -> None:
    estimator = LinearRegressor(model_dir=str(tmp_path), config=CONFIG)
    input_fn = records(num_ids=num_ids)
    estimator.train(repeated(input_fn), max_steps=300)
    weights = estimator.get_table_rows if num_ids == MANY else lambda name, ids: estimator.get_variable_value(name)[ids]
    of_words = weights("linear/linear_model/word/weights", np.arange(6) * (num_ids // FEW))[:, 0]
    bias = estimator.get_variable_value("linear/linear_model/bias_weights")
    np.testing.assert_allclose(of_words + bias, EFFECT, atol=0.02)
    assert estimator.get_variable_value("linear/linear_model/x/weights")[0, 0] == pytest.approx(0.5, abs=0.01)
    predicted = [p["predictions"][0] for p in estimator.predict(input_fn)]
    np.testing.assert_allclose(predicted, TARGETS, atol=0.02)
    assert estimator.evaluate(input_fn)["loss"] < 1e-4


@pytest.mark.parametrize("num_ids", [FEW, MANY])
def test_a_deep_classifier_learns_vectors_of_ids(num_ids: int, tmp_path: Path) -> None:
    optimizer = Adagrad(learning_rate=0.2)
    estimator = DNNClassifier([8], optimizer=optimizer, model_dir=str(tmp_path), config=CONFIG)
    input_fn = records(CLASSES, num_ids, embedding=4)
    estimator.train(repeated(input_fn), max_steps=150)
    assert estimator.evaluate(input_fn)["accuracy"] > 0.95
    vectors = estimator.get_variable_value("dnn/input_layer/word_embedding/embedding_weights")
    assert vectors.shape == (num_ids, 4)


def test_ids_train_as_one_hot_numbers_do(tmp_path: Path) -> None:
    columns = np.eye(FEW, dtype=np.float32)[WORDS]
    losses = []
    for name, input_fn in (
        ("ids", records()),
        ("numbers", lambda: Dataset({"word": columns, "x": NUMBERS}, TARGETS).batch(40)),
    ):
        rate = GradientDescent(learning_rate=0.05)
        estimator = DNNRegressor([5], optimizer=rate, model_dir=str(tmp_path / name), config=CONFIG)
        estimator.train(repeated(input_fn), max_steps=30)
        losses.append(estimator.evaluate(input_fn)["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Estimator:
    estimator = LinearClassifier(model_dir=str(tmp_path_factory.mktemp("trained")), config=CONFIG)
    estimator.train(repeated(records(CLASSES)), max_steps=5)
    return estimator


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (records(CLASSES, num_ids=12), r"int64\[\] of 12 ids"),
        (records(CLASSES, embedding=2), r"int64\[\] of 6 ids, embedding 2"),
        (lambda: Dataset({"word": WORDS, "x": NUMBERS}, CLASSES).batch(40), r"int64\[\]"),
    ],
)
def test_other_ids_are_refused_on_resume(trained: Estimator, other: Callable[[], Dataset], found: str) -> None:
    with pytest.raises(ModelDirError, match=rf"feature 'word' is {found}, expected int64\[\] of 6 ids"):
        trained.train(other, max_steps=9)


def test_an_id_out_of_range_is_refused_by_everything(trained: Estimator) -> None:
    words = np.where(np.arange(120) == 70, 6, WORDS)

    def wrong() -> Dataset:
        return Dataset({"word": words, "x": NUMBERS}, CLASSES).batch(40)

    expected = r"feature 'word' has the id 6 in row 70, expected ids in \[0, 6\) as in training"
    for use in (
        lambda: trained.evaluate(wrong),
        lambda: list(trained.predict(wrong)),
        lambda: Attempt(trained, TrainSpec(records(CLASSES), 9), EvalSpec(wrong)),
    ):
        with pytest.raises(InputError, match=expected):
            use()


def test_many_ids_without_an_embedding_are_refused_before_anything_starts(tmp_path: Path) -> None:
    estimator = DNNRegressor([4], model_dir=str(tmp_path))
    with pytest.raises(InputError, match=r"feature 'word' has 50000 ids: a deep network takes at most 1000 without"):
        estimator.train(records(num_ids=MANY), max_steps=5)
    assert not list(tmp_path.iterdir())


SEEN: dict[str, set[InputSchema]] = {}


def watching(features: Any, labels: Any, mode: str, input_schema: InputSchema) -> EstimatorSpec:
    """Be a model_fn that writes down which schema it is given."""
    SEEN.setdefault(str(mode), set()).add(input_schema)
    weight = get_variable("w", ())
    predictions = weight * features["x"]
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=predictions)
    error = predictions - labels
    op = GradientDescent(learning_rate=0.1).apply_gradients({"w": (error * features["x"]).mean()})
    return EstimatorSpec(mode, loss=float((error**2).mean()), train_op=op)


def test_a_model_fn_is_given_the_schema_of_training_in_every_mode(tmp_path: Path) -> None:
    SEEN.clear()
    estimator = Estimator(watching, str(tmp_path), CONFIG)
    narrow = Dataset({"word": WORDS.astype(np.int16), "x": NUMBERS.astype(np.float64)}, TARGETS).batch(40)
    spec = EvalSpec(lambda: narrow, start_delay_secs=0, throttle_secs=0)
    with Attempt(estimator, TrainSpec(records(), 5), spec) as attempt:
        model = attempt.plan.model
        run_local(attempt.job(), lambda event: None, attempt.check)
    plan_evaluations(estimator.caller, [spec], model, estimator.check_labels, KeptInputs(estimator.model_dir))
    estimator.evaluate(lambda: narrow)
    list(estimator.predict(lambda: narrow))
    schema = records()().schema()
    assert {str(mode): {schema} for mode in (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)} == SEEN


@pytest.mark.parametrize("name", ["word", "word_x_town"])
def test_more_ids_than_a_ps_has_addresses_for_are_refused_by_name_before_anything_starts(name: str, tmp_path: Path):
    (tmp_path / "t.csv").write_text("word,town,y\na,b,1\nb,a,2\n")
    options: dict[str, Any] = {
        "word": {"columns": {"word": ColumnOptions(hash_buckets=2**58)}},
        "word_x_town": {"crosses": {"word_x_town": CrossOptions(["word", "town"], 2**58)}},
    }
    files = Csv(str(tmp_path / "t.csv"), label="y", **options[name])
    estimator = LinearRegressor(model_dir=str(tmp_path / "model"), config=CONFIG)
    with pytest.raises(ModelFnError) as caught:
        estimator.train(lambda: files.read().batch(2), steps=1)
    assert str(caught.value).startswith(f"table 'linear/linear_model/{name}/weights' has 288,230,376,151,711,74")
    assert "rows, at most 68,719,476,736 are possible if a row takes 13 bytes; use fewer ids" in str(caught.value)
    assert not (tmp_path / "model").exists()
