"""Columns of sequences: names, arguments and errors of the original, and layers that a model_fn makes of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest

import psflow as tf
from psflow import Dataset, Estimator, EstimatorSpec, GradientDescent, ModeKeys, RunConfig
from psflow import feature_column as fc
from psflow.ps_runtime.errors import InputError, ModelFnError, PsflowError

WORDS = fc.sequence_categorical_column_with_vocabulary_list("word", ["red", "green"])
TIMES = fc.sequence_numeric_column("time")
TOWN = fc.categorical_column_with_identity("town", 3)

SIGNATURES = {
    "sequence_numeric_column": "key shape=(1,) default_value=0.0 dtype normalizer_fn=None",
    "sequence_categorical_column_with_identity": "key num_buckets default_value=None",
    "sequence_categorical_column_with_hash_bucket": "key hash_bucket_size dtype",
    "sequence_categorical_column_with_vocabulary_list": "key vocabulary_list dtype default_value=-1 num_oov_buckets=0",
    "sequence_categorical_column_with_vocabulary_file": "key vocabulary_file vocabulary_size=None num_oov_buckets=0 "
    "default_value=None dtype",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_the_names_places_and_defaults_of_the_original(name: str) -> None:
    parameters = inspect.signature(getattr(tf.feature_column, name)).parameters.values()
    shown = (
        f"{p.name}={p.default!r}" if p.default is not p.empty and (p.name != "dtype" or p.default is None) else p.name
        for p in parameters
    )
    expected = SIGNATURES[name].replace(" dtype ", " dtype=None ") if name.endswith("_list") else SIGNATURES[name]
    assert " ".join(shown) == expected
    assert name in fc.__all__


def test_columns_are_named_after_their_features() -> None:
    named = [TIMES, WORDS, fc.indicator_column(WORDS), fc.embedding_column(WORDS, 2)]
    assert [column.name for column in named] == ["time", "word", "word_indicator", "word_embedding"]
    [shared] = fc.shared_embeddings([WORDS], 2)
    assert (shared.name, shared.collection_name) == ("word_shared_embedding", "word_shared_embedding")


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("sequence_numeric_column", (1,), {}, ValueError, "key is 1"),
    ("sequence_numeric_column", ("t", 0), {}, ValueError, "at least 1"),
    ("sequence_numeric_column", ("t", 1.5), {}, TypeError, "shape of column 't'"),
    ("sequence_numeric_column", ("t",), {"dtype": str}, ValueError, "a float or an integer"),
    ("sequence_numeric_column", ("t",), {"normalizer_fn": 1}, TypeError, "expected a function"),
    ("sequence_numeric_column", ("t", 1, "s"), {}, TypeError, "default_value of column 't' is 's'"),
    ("sequence_numeric_column", ("t", 1, [1.0]), {}, TypeError, "expected a finite number"),
    ("sequence_numeric_column", ("t", 1, float("nan")), {}, TypeError, "expected a finite number"),
    ("sequence_categorical_column_with_identity", ("i", 0), {}, ValueError, "expected an integer from 1"),
    ("sequence_categorical_column_with_hash_bucket", ("h", 0), {}, ValueError, "expected an integer from 1"),
    ("sequence_categorical_column_with_vocabulary_list", ("w", []), {}, ValueError, "a list of 1 or more"),
    ("sequence_categorical_column_with_vocabulary_file", ("w", "no.txt"), {}, ValueError, "cannot be read"),
    ("weighted_categorical_column", (WORDS, "w"), {}, ValueError, "expected a categorical column"),
    ("crossed_column", (["a", WORDS], 9), {}, ValueError, "categorical columns"),
    ("shared_embeddings", ([WORDS, fc.categorical_column_with_identity("i", 2)], 2), {}, ValueError, "a sequence of"),
]


@pytest.mark.parametrize(("name", "given", "options", "kind", "words"), WRONG)
def test_a_wrong_argument_is_refused(
    name: str, given: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        getattr(fc, name)(*given, **options)
    assert isinstance(caught.value, PsflowError)


WRONG_LAYERS: list[tuple[Any, str]] = [
    (lambda: fc.sequence_input_layer({}, []), "expected a list of feature columns"),
    (lambda: fc.sequence_input_layer({}, WORDS), "'word', a categorical column; wrap it in embedding_column"),
    (lambda: fc.sequence_input_layer({}, fc.numeric_column("time")), "'time', which is not a sequence column"),
    (
        lambda: fc.sequence_input_layer({}, fc.indicator_column(TOWN)),
        "'town_indicator', which is not a sequence column",
    ),
    (lambda: fc.sequence_input_layer({}, [TIMES, TIMES]), "2 columns named 'time'"),
    (lambda: fc.input_layer({}, TIMES), "'time', a sequence column, which sequence_input_layer"),
    (lambda: fc.input_layer({}, fc.embedding_column(WORDS, 2)), "'word_embedding', a sequence column"),
    (lambda: fc.linear_model({}, WORDS), "'word', a sequence column"),
    (lambda: tf.LinearClassifier(fc.indicator_column(WORDS)), "'word_indicator', a sequence column"),
    (lambda: tf.DNNRegressor([4], fc.indicator_column(WORDS)), "'word_indicator', a sequence column"),
    (lambda: tf.DNNRegressor([4], WORDS), "'word', a sequence column"),
]


@pytest.mark.parametrize(("make", "words"), WRONG_LAYERS)
def test_a_layer_takes_columns_of_its_own_kind(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_what_is_no_value_fills_sequences_up() -> None:
    given = {"time": np.float32([[5, np.nan, 2, np.nan], [np.nan] * 4])}
    inputs, lengths = fc.sequence_input_layer(given, fc.sequence_numeric_column("time", default_value=-1))
    assert inputs.tolist() == [[[5], [-1], [2], [-1]], [[-1]] * 4]
    assert lengths.tolist() == [3, 0]
    assert lengths.dtype == np.int64
    words = {"word": np.array([["red", None], [None, "green"]], object)}
    inputs, lengths = fc.sequence_input_layer(words, fc.indicator_column(WORDS))
    assert inputs.tolist() == [[[1, 0], [0, 0]], [[0, 0], [0, 1]]]
    assert lengths.tolist() == [1, 2]


def test_no_example_and_no_step_are_sequences_too() -> None:
    columns = [TIMES, fc.indicator_column(WORDS)]
    for shape in ((0, 3), (3, 0)):
        inputs, lengths = fc.sequence_input_layer({"time": np.zeros(shape), "word": np.full(shape, "")}, columns)
        assert inputs.shape == (*shape, 3)
        assert lengths.tolist() == [0] * shape[0]


def test_a_default_comes_after_the_function_that_normalizes() -> None:
    column = fc.sequence_numeric_column("time", default_value=9, normalizer_fn=lambda numbers: numbers + 1)
    inputs, _ = fc.sequence_input_layer({"time": np.float32([[1, np.nan]])}, column)
    assert inputs.tolist() == [[[2], [9]]]
    with pytest.raises(ModelFnError, match="normalizer_fn of column 'time' returned"):
        fc.sequence_input_layer(
            {"time": np.zeros((2, 2))}, fc.sequence_numeric_column("time", normalizer_fn=lambda numbers: numbers[:1])
        )


def test_a_step_may_have_a_shape() -> None:
    column = fc.sequence_numeric_column("point", (2,))
    whole = np.float32([[[1, 2], [3, 4]], [[5, 6], [np.nan, np.nan]]])
    for given in (whole, whole.reshape(2, 4)):
        inputs, lengths = fc.sequence_input_layer({"point": given}, column)
        assert inputs.tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
        assert lengths.tolist() == [2, 1]


HASHED = fc.sequence_categorical_column_with_hash_bucket("word", 50)
WRONG_FEATURES: list[tuple[Any, dict[str, Any], str]] = [
    (TIMES, {}, "no feature 'time'"),
    (TIMES, {"time": np.zeros(3)}, r"feature 'time' has the shape \(3,\), expected sequences, \(batch, length\)"),
    (
        TIMES,
        {"time": [[1], [2, 3]]},
        r"feature 'time' has lists of several lengths, expected an array \(batch, ...\); pad",
    ),
    (TIMES, {"time": np.array([["a"]])}, "expects numbers"),
    (TIMES, {"time": np.zeros((1, 2, 3))}, r"its column expects \(batch, length, 1\)"),
    (fc.sequence_numeric_column("time", 2), {"time": np.zeros((1, 3))}, r"its column expects \(batch, length, 2\)"),
    (fc.indicator_column(HASHED), {"word": np.zeros((1, 2))}, "expects text"),
    (
        [TIMES, fc.indicator_column(HASHED)],
        {"time": np.float32([[1, 2], [1, np.nan]]), "word": np.array([["a", "b"], ["a", "b"]])},
        "'word_indicator' has 2 steps in row 1 of the batch, but 'time' has 1",
    ),
    (
        [TIMES, fc.indicator_column(HASHED)],
        {"time": np.float32([[1, 2]]), "word": np.array([["a", "b", ""]])},
        "'time' has 2 and 'word_indicator' has 3; pad them to one length",
    ),
    (
        [TIMES, fc.indicator_column(HASHED)],
        {"time": np.zeros((2, 1)), "word": np.array([["a"]])},
        "'word_indicator' has 1 sequences, but 'time' has 2",
    ),
]


@pytest.mark.parametrize(("columns", "features", "words"), WRONG_FEATURES)
def test_a_feature_that_is_no_such_sequence_is_refused(columns: Any, features: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fc.sequence_input_layer(features, columns)


def texts(num_rows: int = 24) -> Dataset:
    """Return sequences of words, and how many of them are red before the last is reached."""
    random = np.random.default_rng(2)
    word = random.choice(["red", "green", "blue"], (num_rows, 5))
    word[np.arange(5) >= random.integers(1, 6, (num_rows, 1))] = ""
    return Dataset({"word": word}, (word == "red").sum(axis=1).astype(np.float32)).batch(6)


def mean_of_steps(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """A model_fn that adds up what each step says, differentiated by autograd."""
    inputs, lengths = fc.sequence_input_layer(features, [fc.embedding_column(WORDS, 2), fc.indicator_column(WORDS)])
    of_steps = anp.dot(inputs, tf.get_variable("kernel", (4,), initializer=tf.initializers.ones))
    outputs = (of_steps * (np.arange(inputs.shape[1]) < lengths[:, np.newaxis])).sum(axis=1)
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions={"count": outputs})
    loss = ((outputs - labels) ** 2).mean()
    if mode == ModeKeys.EVAL:
        return EstimatorSpec(mode, loss=loss)
    return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(0.05).minimize(loss))


def test_a_model_fn_learns_of_sequences(tmp_path: Path) -> None:
    estimator = Estimator(mean_of_steps, str(tmp_path), RunConfig(tf_random_seed=1, save_checkpoints_steps=1000))
    estimator.train(lambda: texts().repeat(), max_steps=150)
    assert estimator.evaluate(texts)["loss"] < 0.05
    assert "sequence_input_layer/word_embedding/embedding_weights" in estimator.get_variable_names()
    [found] = estimator.predict(lambda: {"word": np.array([["red", "blue", "red", "", ""]])})
    assert found["count"] == pytest.approx(2, abs=0.4)


def test_what_columns_of_sequences_mean_is_held_by_a_checkpoint(tmp_path: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> EstimatorSpec:
        words = fc.sequence_categorical_column_with_vocabulary_list("word", params["words"])
        inputs, _ = fc.sequence_input_layer(features, fc.indicator_column(words))
        loss = (inputs.sum() * tf.get_variable("w", ())) ** 2
        return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(0.1).minimize(loss))

    def estimator(*words: str) -> Estimator:
        return Estimator(model_fn, str(tmp_path), RunConfig(tf_random_seed=1), {"words": list(words)})

    estimator("red", "green").train(texts, steps=1)
    with pytest.raises(ValueError, match="vocabulary"):
        estimator("green", "red").train(texts, steps=1)
