"""Feature columns: names, arguments and errors of the original, and what canned models make of raw features."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import cloudpickle
import numpy as np
import pytest

import psflow as tf
from psflow import Dataset, Estimator, EstimatorSpec, GradientDescent, ModeKeys, RunConfig
from psflow import feature_column as fc
from psflow.ps_runtime.errors import InputError, ModelDirError, ModelFnError, PsflowError
from psflow.ps_runtime.estimator.attempt import Attempt
from psflow.ps_runtime.feature_columns import choosing, transforming
from psflow.ps_runtime.feature_columns.transforming import Transformation
from tests.ps_runtime.roles.conftest import RoleThreads, roles  # noqa: F401  (a fixture)

CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=1000, log_step_count_steps=None)
COLORS = fc.categorical_column_with_vocabulary_list("color", ["red", "green"])
AREA = fc.numeric_column("area")
SIZES = fc.bucketized_column(AREA, [1.0, 2.0])
TOWN = fc.categorical_column_with_identity("town", 3)
VECTORS = fc.embedding_column(COLORS, 2)


def houses(num_rows: int = 24) -> Dataset:
    """Return raw features: words, numbers and ids."""
    random = np.random.default_rng(1)
    area, town = random.uniform(0, 3, num_rows).astype(np.float32), random.integers(0, 3, num_rows)
    color = np.array(["red", "green", "blue", ""])[random.integers(0, 4, num_rows)]
    price = 2 * area + (color == "red") - (town == 2)
    return Dataset({"area": area, "color": color, "town": town}, price.astype(np.float32)).batch(6)


SIGNATURES = {
    "numeric_column": "key shape=(1,) default_value=None dtype normalizer_fn=None",
    "bucketized_column": "source_column boundaries",
    "categorical_column_with_vocabulary_list": "key vocabulary_list dtype default_value=-1 num_oov_buckets=0",
    "categorical_column_with_vocabulary_file": "key vocabulary_file vocabulary_size=None dtype default_value=None "
    "num_oov_buckets=0 file_format=None",
    "categorical_column_with_identity": "key num_buckets default_value=None",
    "categorical_column_with_hash_bucket": "key hash_bucket_size dtype",
    "weighted_categorical_column": "categorical_column weight_feature_key dtype",
    "crossed_column": "keys hash_bucket_size hash_key=None",
    "indicator_column": "categorical_column",
    "embedding_column": "categorical_column dimension combiner='mean' initializer=None ckpt_to_load_from=None "
    "tensor_name_in_ckpt=None max_norm=None trainable=True use_safe_embedding_lookup=True",
    "shared_embeddings": "categorical_columns dimension combiner='mean' initializer=None "
    "shared_embedding_collection_name=None ckpt_to_load_from=None tensor_name_in_ckpt=None max_norm=None "
    "trainable=True use_safe_embedding_lookup=True",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_the_names_places_and_defaults_of_the_original(name: str) -> None:
    parameters = inspect.signature(getattr(tf.feature_column, name)).parameters.values()
    shown = (
        f"{p.name}={p.default!r}" if p.default is not p.empty and p.name != "dtype" else p.name for p in parameters
    )
    assert " ".join(shown) == SIGNATURES[name]
    assert name in fc.__all__


NAMES = {
    "area": AREA,
    "area_bucketized": SIZES,
    "color": COLORS,
    "color_weighted_by_w": fc.weighted_categorical_column(COLORS, "w"),
    "area_bucketized_X_color_X_town": fc.crossed_column(["town", fc.crossed_column([COLORS, SIZES], 9)], 10),
    "color_indicator": fc.indicator_column(COLORS),
    "color_embedding": VECTORS,
    "town_shared_embedding": fc.shared_embeddings([TOWN], 2)[0],
}


@pytest.mark.parametrize("name", NAMES)
def test_a_column_has_the_name_of_the_original(name: str) -> None:
    assert NAMES[name].name == name


def test_columns_are_plain_and_frozen() -> None:
    assert fc.numeric_column("area", 1) == AREA != fc.numeric_column("area", 2)
    assert len({COLORS, fc.categorical_column_with_vocabulary_list("color", ("red", "green"))}) == 1
    with pytest.raises(FrozenInstanceError):
        AREA.key = "other"  # type: ignore[misc]


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("numeric_column", (3,), {}, ValueError, "key is 3"),
    ("numeric_column", ("x", (1.5,)), {}, TypeError, "shape of column 'x'"),
    ("numeric_column", ("x", (0,)), {}, ValueError, "at least 1"),
    ("numeric_column", ("x", {2, 3}), {}, TypeError, "shape of column 'x'"),
    ("numeric_column", ("",), {}, ValueError, "key is ''"),
    ("numeric_column", ("x",), {"dtype": str}, ValueError, "expected a float or an integer dtype"),
    ("numeric_column", ("x",), {"dtype": None}, ValueError, "dtype of column 'x' is None"),
    ("numeric_column", ("x", 2), {"default_value": [1.0]}, ValueError, "has the shape"),
    ("numeric_column", ("x",), {"default_value": 0.5, "dtype": int}, TypeError, "expected numbers of int64"),
    ("numeric_column", ("x",), {"default_value": "a"}, TypeError, "expected numbers"),
    ("numeric_column", ("x",), {"normalizer_fn": 3}, TypeError, "expected a function"),
    ("bucketized_column", (COLORS, [1]), {}, ValueError, "numeric_column"),
    ("bucketized_column", (fc.numeric_column("x", (2, 2)), [1]), {}, ValueError, "shape"),
    ("bucketized_column", (AREA, []), {}, ValueError, "ascending"),
    ("bucketized_column", (AREA, [1, 1]), {}, ValueError, "ascending"),
    ("bucketized_column", (AREA, {1, 2}), {}, ValueError, "ascending"),
    ("bucketized_column", (AREA, ["a", "b"]), {}, ValueError, "ascending"),
    ("bucketized_column", (AREA, [1, None]), {}, ValueError, "ascending"),
    ("bucketized_column", (AREA, [0.0, float("nan")]), {}, ValueError, "finite"),
    ("bucketized_column", (AREA, [0.0, float("inf")]), {}, ValueError, "finite"),
    ("categorical_column_with_vocabulary_list", ("c", []), {}, ValueError, "a list of 1 or more"),
    ("categorical_column_with_vocabulary_list", ("c", None), {}, ValueError, "vocabulary_list of column 'c' is None"),
    ("categorical_column_with_vocabulary_list", ("c", 5), {}, TypeError, "in order"),
    ("categorical_column_with_vocabulary_list", ("c", {"a", "b"}), {}, TypeError, "in order"),
    ("categorical_column_with_vocabulary_list", ("c", ["a"], None, -1, "a"), {}, TypeError, "num_oov_buckets"),
    ("categorical_column_with_vocabulary_list", ("c", ["a"], None, "b"), {}, TypeError, "default_value"),
    ("categorical_column_with_vocabulary_list", ("c", ["a", "a"]), {}, ValueError, "repeats 'a'"),
    ("categorical_column_with_vocabulary_list", ("c", ["a", b"a"]), {}, ValueError, "repeats 'a'"),
    ("categorical_column_with_vocabulary_list", ("c", [b"\xff"]), {}, ValueError, "not UTF-8"),
    ("categorical_column_with_vocabulary_list", ("c", [["a"], ["b"]]), {}, ValueError, r"has the shape \[2, 1\]"),
    ("categorical_column_with_vocabulary_list", ("c", ["a", None]), {}, ValueError, "has None among strings"),
    ("categorical_column_with_vocabulary_list", ("c", [1.5]), {}, ValueError, "an integer or a string"),
    ("categorical_column_with_vocabulary_list", ("c", ["a"], int), {}, ValueError, "vocabulary_list is of string"),
    ("categorical_column_with_vocabulary_list", ("c", ["a"], None, 0, 1), {}, ValueError, "expected one of them"),
    ("categorical_column_with_vocabulary_list", ("c", ["a"], None, -1, -1), {}, ValueError, "expected an integer >= 0"),
    ("categorical_column_with_vocabulary_list", ("c", ["a"], None, 1), {}, ValueError, "below 1"),
    ("categorical_column_with_vocabulary_file", ("c", ""), {}, ValueError, "missing"),
    ("categorical_column_with_vocabulary_file", ("c", "no.txt"), {}, ValueError, "cannot be read"),
    ("categorical_column_with_vocabulary_file", ("c", "a.tfrecord.gz"), {}, ValueError, "text file"),
    ("categorical_column_with_vocabulary_file", ("c", "no.txt", 0), {}, ValueError, "expected an integer >= 1"),
    ("categorical_column_with_identity", ("i", 0), {}, ValueError, "expected an integer from 1"),
    ("categorical_column_with_identity", ("i", "3"), {}, TypeError, "num_buckets of column 'i' is '3'"),
    ("categorical_column_with_identity", ("i", 3, "a"), {}, TypeError, "default_value of column 'i' is 'a'"),
    ("categorical_column_with_identity", ("i", 3, 3), {}, ValueError, r"\[0, 3\)"),
    ("categorical_column_with_identity", ("i", 3, 4), {}, ValueError, r"\[0, 3\)"),
    ("categorical_column_with_identity", ("i", 3, -1), {}, ValueError, r"\[0, 3\)"),
    ("categorical_column_with_identity", ("i", 2**62), {}, ValueError, r"2\*\*62 - 1"),
    ("categorical_column_with_hash_bucket", ("h", None), {}, ValueError, "expected an integer from 1"),
    ("categorical_column_with_hash_bucket", ("h", "9"), {}, TypeError, "hash_bucket_size of column 'h' is '9'"),
    ("categorical_column_with_hash_bucket", ("h", 0), {}, ValueError, "expected an integer from 1"),
    ("categorical_column_with_hash_bucket", ("h", 9, float), {}, ValueError, "an integer or a string"),
    ("weighted_categorical_column", (AREA, "w"), {}, ValueError, "a categorical column"),
    ("weighted_categorical_column", (COLORS, 1), {}, ValueError, "weight_feature_key is 1"),
    ("weighted_categorical_column", (COLORS, "w", str), {}, ValueError, "a float or an integer"),
    ("crossed_column", (["a"], 9), {}, ValueError, "a list of 2 or more"),
    ("crossed_column", ({"a", "b"}, 9), {}, TypeError, "in order"),
    ("crossed_column", ("ab", 9), {}, TypeError, "in order"),
    ("crossed_column", ((key for key in "ab"), 9), {}, TypeError, "in order"),
    ("crossed_column", (["a", 1], 9), {}, ValueError, "keys of a cross have 1"),
    ("crossed_column", (["a", "b"], "9"), {}, TypeError, "hash_bucket_size of a cross is '9'"),
    ("crossed_column", (["a", "b"], 9, "k"), {}, TypeError, "hash_key of a cross is 'k'"),
    ("crossed_column", (["a", "b"], 0), {}, ValueError, "from 1"),
    ("crossed_column", (["a", AREA], 9), {}, ValueError, "categorical columns"),
    ("crossed_column", (["a", fc.categorical_column_with_hash_bucket("h", 9)], 9), {}, ValueError, "use 'h' itself"),
    ("crossed_column", (["a", NAMES["color_weighted_by_w"]], 9), {}, ValueError, "weights"),
    ("crossed_column", (["a", "b"], 9, -1), {}, ValueError, "hash_key"),
    ("indicator_column", (AREA,), {}, ValueError, "a categorical column"),
    ("embedding_column", (COLORS, 0), {}, ValueError, "dimension is 0"),
    ("embedding_column", (COLORS, None), {}, ValueError, "dimension is None"),
    ("embedding_column", (COLORS, "4"), {}, TypeError, "dimension is '4'"),
    ("embedding_column", (COLORS, 2), {"max_norm": "a"}, TypeError, "max_norm is 'a'"),
    ("embedding_column", (COLORS, 2), {"max_norm": float("nan")}, ValueError, "max_norm is nan"),
    ("embedding_column", (AREA, 2), {}, ValueError, "a categorical column"),
    ("embedding_column", (COLORS, 2, "men"), {}, ValueError, "did you mean 'mean'"),
    ("embedding_column", (COLORS, 2, "sum", 0.5), {}, ValueError, "expected a function"),
    ("embedding_column", (COLORS, 2), {"max_norm": 0}, ValueError, "above 0"),
    ("embedding_column", (COLORS, 2), {"ckpt_to_load_from": "c"}, ValueError, "warm_start_from"),
    ("embedding_column", (COLORS, 2), {"use_safe_embedding_lookup": False}, ValueError, "expected True"),
    ("shared_embeddings", ([], 2), {}, ValueError, "a list of 1 or more"),
    ("shared_embeddings", (TOWN, 2), {}, TypeError, "in order"),
    ("shared_embeddings", ({TOWN}, 2), {}, TypeError, "in order"),
    ("shared_embeddings", (None, 2), {}, ValueError, "categorical_columns is None"),
    ("shared_embeddings", ([TOWN], 2), {"initializer": 3}, ValueError, "expected a function"),
    ("shared_embeddings", ([TOWN], 2, "sum", None, ""), {}, ValueError, "shared_embedding_collection_name is ''"),
    ("shared_embeddings", ([COLORS, TOWN], 2), {}, ValueError, "same kind and number of ids"),
    (
        "shared_embeddings",
        ([TOWN, fc.categorical_column_with_identity("i", 4)], 2),
        {},
        ValueError,
        "same kind and number of ids",
    ),
    ("shared_embeddings", ([TOWN, AREA], 2), {}, ValueError, "a categorical column"),
]


@pytest.mark.parametrize(("name", "given", "options", "kind", "words"), WRONG)
def test_a_wrong_argument_is_the_error_of_the_original(
    name: str, given: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        getattr(fc, name)(*given, **options)
    assert isinstance(caught.value, PsflowError)


@pytest.mark.parametrize(
    "words", [[b"red", b"green"], np.array(["red", "green"], object), np.array([b"red", b"green"])]
)
def test_a_vocabulary_of_bytes_or_objects_is_one_of_words(words: Any) -> None:
    assert fc.categorical_column_with_vocabulary_list("color", words) == COLORS
    integers = fc.categorical_column_with_vocabulary_list("code", np.array([9, 3], object))
    assert integers == fc.categorical_column_with_vocabulary_list("code", [9, 3])


def test_a_byte_order_mark_is_no_part_of_the_first_word(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("\ufeffred\nblue\n")
    column = fc.categorical_column_with_vocabulary_file("color", str(path))
    assert column.vocabulary == ("red", "blue")
    path.write_text("\ufeff7\n")
    assert fc.categorical_column_with_vocabulary_file("n", str(path), dtype=np.int64).vocabulary == ("7",)


def test_a_vocabulary_file_is_held_against_its_arguments(tmp_path: Path) -> None:
    path = tmp_path / "codes.txt"
    path.write_text("7\n07\n-2\n")
    column = fc.categorical_column_with_vocabulary_file("code", str(path), vocabulary_size=1, dtype=np.int64)
    assert (column.vocabulary, column.num_buckets) == (("7",), 1)
    with pytest.raises(InputError, match="expected 4 lines or more"):
        fc.categorical_column_with_vocabulary_file("code", str(path), 4)
    with pytest.raises(ValueError, match="expected one of them"):
        fc.categorical_column_with_vocabulary_file("code", str(path), 3, default_value=0, num_oov_buckets=1)
    path.write_text("7\nseven\n")
    with pytest.raises(ValueError, match="line 2 is 'seven', expected an integer"):
        fc.categorical_column_with_vocabulary_file("code", str(path), dtype=np.int64)
    path.write_text("")
    with pytest.raises(ValueError, match="is empty"):
        fc.categorical_column_with_vocabulary_file("code", str(path))


FEATURES = {
    "area": np.float32([0.5, 1, np.nan]),
    "color": np.array([["red", ""], ["blue", "green"], ["", ""]]),
    "town": np.array([0, 2, -1]),
    "w": np.float32([[2, 0], [1, 0], [0, 0]]),
}


def ids_of(column: Any, **features: Any) -> list[list[int]]:
    found = Transformation(FEATURES | features).ids(column)
    return [row[there].tolist() for row, there in zip(found.ids, found.present, strict=True)]


def test_missing_values_drop_out() -> None:
    assert ids_of(COLORS) == [[0], [-1, 1], []]
    assert ids_of(TOWN) == [[0], [2], []]
    objects = np.array(["red", None, "green"], object)
    assert ids_of(COLORS, color=objects) == [[0], [], [1]]
    assert ids_of(COLORS, color=np.array([b"red", b"", b"green"])) == [[0], [], [1]]


def test_an_id_out_of_range_is_refused_or_becomes_the_default() -> None:
    with pytest.raises(InputError, match=r"feature 'town' has 3 in row 1 of the batch, expected ids in \[0, 3\)"):
        ids_of(TOWN, town=np.array([-5, 3]))
    assert ids_of(TOWN, town=np.array([-5, 2, -1])) == [[-5], [2], []]
    zero = fc.categorical_column_with_identity("town", 3, default_value=0)
    assert ids_of(zero, town=np.array([9, 1])) == [[0], [1]]
    defaulted = fc.categorical_column_with_identity("town", 3, default_value=1)
    assert ids_of(defaulted, town=np.array([-5, 3, -1, 0])) == [[1], [1], [], [0]]
    with pytest.raises(InputError, match=r"below 2\*\*63"):
        ids_of(TOWN, town=np.array([2**63], np.uint64))


def test_a_weight_that_is_0_weighs_nothing_and_one_without_a_value_is_refused() -> None:
    weighted = fc.indicator_column(NAMES["color_weighted_by_w"])
    assert Transformation(FEATURES).numbers(weighted).tolist() == [[2, 0], [0, 0], [0, 0]]
    with pytest.raises(InputError, match="'w' has a weight in row 2 of the batch where 'color' has no value"):
        Transformation(FEATURES | {"w": np.ones((3, 2))[:, ::-1] * [[1, 0], [1, 1], [1, 0]]}).numbers(weighted)
    with pytest.raises(InputError, match="a weight for each value of 'color'"):
        Transformation(FEATURES | {"w": np.ones(3)}).numbers(weighted)


def test_what_is_missing_is_crossed_as_in_the_original() -> None:
    cross = ids_of(fc.crossed_column([COLORS, "town"], 2**40))
    assert [len(row) for row in cross] == [1, 2, 0], "a column drops what is missing, a feature itself does not"
    of_words = ids_of(fc.crossed_column(["color", "town"], 2**40))
    assert [len(row) for row in of_words] == [2, 2, 2]
    assert of_words[2][0] == of_words[2][1] != of_words[0][1]
    other = ids_of(fc.crossed_column(["color", "town"], 2**40, hash_key=7))
    assert not {*other[0], *other[1]} & {*of_words[0], *of_words[1]}
    assert ids_of(fc.crossed_column(["color", "town"], 1)) == [[0, 0]] * 3


WRONG_FEATURES: list[tuple[Any, dict[str, Any], str]] = [
    (COLORS, {"color": np.array([1, 2])}, "expects text"),
    (COLORS, {"color": np.array(["a", 3], object)}, "expects text"),
    (TOWN, {"town": np.float32([1])}, "expects integers"),
    (fc.categorical_column_with_hash_bucket("town", 9, int), {"town": np.array(["a"])}, "expects integers"),
    (fc.crossed_column(["area", "town"], 9), {}, "'area' is of float32, its column expects text"),
    (fc.categorical_column_with_identity("twon", 3), {}, "no feature 'twon'.*did you mean 'town'"),
    (TOWN, {"town": np.array(1)}, "a single value"),
]


@pytest.mark.parametrize(("column", "features", "words"), WRONG_FEATURES)
def test_a_feature_of_another_kind_is_refused(column: Any, features: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Transformation(FEATURES | features).ids(column)


def test_a_number_that_is_missing_lies_in_no_bucket() -> None:
    sizes = fc.bucketized_column(AREA, [1.0])
    with pytest.raises(InputError, match="feature 'area' is NaN in row 2 of the batch, which has no bucket"):
        ids_of(sizes)
    assert ids_of(sizes, area=np.float32([np.inf, -np.inf])) == [[1], [0]]
    filled = fc.bucketized_column(fc.numeric_column("area", default_value=9), [1.0])
    assert ids_of(filled) == [[0], [1], [1]]


def test_the_shape_of_a_number_may_be_that_of_none() -> None:
    scalar = fc.numeric_column("area", shape=(), normalizer_fn=lambda x: np.array([x.sum(), *x[1:]]))
    for given in (np.float32([1, 2]), np.float32([[1], [2]])):
        assert Transformation({"area": given}).numbers(scalar).tolist() == [[3], [2]]
    sizes = fc.bucketized_column(fc.numeric_column("area", ()), [1.5])
    assert sizes.num_buckets == 2
    assert ids_of(sizes, area=np.float32([1, 2])) == [[0], [1]]
    with pytest.raises(InputError, match="has the shape"):
        Transformation({"area": np.zeros((2, 2))}).numbers(scalar)


def test_words_that_are_no_utf_8_are_refused_with_their_row() -> None:
    for words in (np.array([b"red", b"\xff"]), np.array(["red", b"\xff"], object)):
        with pytest.raises(InputError, match=r"row 1 of feature 'color' is .*not UTF-8"):
            ids_of(COLORS, color=words)
    assert ids_of(COLORS, color=np.array([b"red", "green", None], object)) == [[0], [1], []]


def test_numbers_have_the_shape_of_their_column() -> None:
    with pytest.raises(InputError, match=r"feature 'area' has the shape \(3, 1\), its column expects \(3, 2\)"):
        Transformation(FEATURES).numbers(fc.numeric_column("area", 2))
    with pytest.raises(InputError, match="expects numbers"):
        Transformation(FEATURES).numbers(fc.numeric_column("color", 2))
    with pytest.raises(InputError, match="the input is one array"):
        Transformation(np.zeros(3))


def test_a_number_that_is_missing_has_the_default_before_it_is_normalized() -> None:
    column = fc.numeric_column("area", default_value=9, normalizer_fn=lambda x: x + 1)
    assert Transformation(FEATURES).numbers(column).tolist() == [[1.5], [2], [10]]
    assert Transformation({"area": np.array([3])}).numbers(column).dtype == np.float32


def test_a_function_that_normalizes_may_write_into_its_argument() -> None:
    def less_ten(numbers: Any) -> Any:
        numbers -= 10
        return numbers

    given = {"area": np.float32([3])}
    found = Transformation(given)
    assert found.numbers(fc.numeric_column("area", normalizer_fn=less_ten)).tolist() == [[-7]]
    assert found.numbers(AREA).tolist() == [[3]]
    assert given["area"].tolist() == [3]


def test_a_function_that_normalizes_is_told_when_it_fails() -> None:
    def fails(numbers: Any) -> Any:
        raise KeyError("scale")

    with pytest.raises(ModelFnError, match="normalizer_fn of column 'area' raised KeyError: 'scale'"):
        Transformation(FEATURES).numbers(fc.numeric_column("area", normalizer_fn=fails))
    with pytest.raises(ModelFnError, match=r"normalizer_fn of column 'area' returned float32\[\], expected \[3, 1\]"):
        Transformation(FEATURES).numbers(fc.numeric_column("area", normalizer_fn=np.max))


def test_what_columns_have_in_common_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[str] = []
    in_vocabulary = transforming.vocabulary_ids

    def counted(array: Any, column: str, words: Any) -> Any:
        looked_up.append(column)
        return in_vocabulary(array, column, words)

    monkeypatch.setattr(transforming, "vocabulary_ids", counted)
    same = fc.categorical_column_with_vocabulary_list("color", ["red", "green"])
    found = Transformation(FEATURES)
    found.ids(COLORS)
    found.numbers(fc.indicator_column(same))
    found.ids(fc.crossed_column([COLORS, "town"], 9))
    assert looked_up == ["color"]


LINEAR = [AREA, COLORS, SIZES, TOWN, fc.crossed_column([COLORS, TOWN], 50), fc.indicator_column(TOWN)]
DEEP = [AREA, SIZES, VECTORS, fc.indicator_column(TOWN)]
MODELS: dict[str, Any] = {
    "LinearRegressor": lambda **given: tf.LinearRegressor(LINEAR, **given),
    "DNNRegressor": lambda **given: tf.DNNRegressor([4], DEEP, **given),
    "DNNLinearCombinedRegressor": lambda **given: tf.DNNLinearCombinedRegressor(
        linear_feature_columns=iter(LINEAR), dnn_feature_columns=DEEP, dnn_hidden_units=[4], **given
    ),
}


@pytest.mark.parametrize("model", MODELS)
def test_canned_models_take_columns_where_the_original_does_and_read_raw_features(model: str, tmp_path: Path) -> None:
    estimator = MODELS[model](model_dir=str(tmp_path), config=CONFIG)
    before = estimator.train(houses, steps=1).evaluate(houses)["loss"]
    assert estimator.train(lambda: houses().repeat(), max_steps=60).evaluate(houses)["loss"] < before
    predictions = [
        row["predictions"][0] for row in estimator.predict(lambda: {"area": [1.0], "color": ["x"], "town": 0})
    ]
    assert np.isfinite(predictions).all()


def test_one_column_is_a_list_of_one_and_the_order_says_nothing(tmp_path: Path) -> None:
    values = [
        tf.LinearRegressor(columns, model_dir=str(tmp_path / str(index)), config=CONFIG)
        .train(houses, steps=2)
        .get_variable_value("linear/linear_model/color/weights")
        for index, columns in enumerate([[AREA, COLORS], (COLORS, AREA), COLORS])
    ]
    assert (values[0] == values[1]).all()
    assert values[2].shape == (2, 1)
    assert (values[2] != values[0]).all()


VECTORS_OF_V: dict[str, Any] = {
    "initializer": tf.initializers.normal(stddev=0.1),
    "shared_embedding_collection_name": "v",
}

WRONG_LISTS: list[tuple[Any, str]] = [
    (lambda: tf.LinearRegressor([]), "expected a list of feature columns"),
    (lambda: tf.LinearRegressor({"area": AREA}), "expected a list of feature columns"),
    (lambda: tf.LinearRegressor(["area"]), "has 'area', expected feature columns"),
    (lambda: tf.LinearRegressor([COLORS, AREA, COLORS]), "2 columns named 'color'"),
    (lambda: tf.LinearClassifier([VECTORS]), "use 'color', its categorical column"),
    (lambda: tf.LinearClassifier(AREA, sparse_combiner="avg"), "sparse_combiner is 'avg'"),
    (lambda: tf.DNNClassifier([4], [COLORS]), "wrap it in embedding_column or indicator_column"),
    (
        lambda: tf.DNNRegressor(
            [4],
            [*fc.shared_embeddings([TOWN], 2, "sum", None, "v"), *fc.shared_embeddings([COLORS], 2, "sum", None, "v")],
        ),
        "whose vectors 'v' another column uses with other ids",
    ),
    *(
        (
            lambda options=options: tf.DNNRegressor(
                [4],
                [
                    *fc.shared_embeddings([TOWN], 2, "sum", tf.initializers.normal(stddev=0.1), "v"),
                    *fc.shared_embeddings([fc.categorical_column_with_identity("i", 3)], **options),
                ],
            ),
            f"with other {fact}; make them equal",
        )
        for fact, options in {
            "dimension": {"dimension": 3, **VECTORS_OF_V},
            "initializer": {"dimension": 2, **VECTORS_OF_V, "initializer": tf.initializers.normal(stddev=0.2)},
            "max_norm": {"dimension": 2, **VECTORS_OF_V, "max_norm": 1.0},
            "trainable": {"dimension": 2, **VECTORS_OF_V, "trainable": False},
        }.items()
    ),
    (
        lambda: tf.DNNLinearCombinedRegressor([4], linear_feature_columns=[AREA]),
        "dnn_feature_columns is None, expected a list of feature columns",
    ),
]


@pytest.mark.parametrize(("make", "words"), WRONG_LISTS)
def test_columns_that_a_model_does_not_take_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_columns_of_two_calls_share_vectors_that_are_made_alike() -> None:
    other = fc.categorical_column_with_identity("i", 3)
    made = [fc.shared_embeddings([column], 2, **VECTORS_OF_V) for column in (TOWN, other)]
    again = fc.shared_embeddings([TOWN], 2, "sum", tf.initializers.normal(stddev=0.1), "v")
    assert not choosing.deep_columns_faults([*again, *made[1]])


def test_shared_embeddings_are_one_variable(tmp_path: Path) -> None:
    towns = [fc.categorical_column_with_identity(key, 3) for key in ("town", "other")]

    def visits() -> Dataset:
        town = np.arange(6) % 3
        return Dataset({"town": town, "other": town[::-1].copy()}, np.float32(town)).batch(3)

    estimator = tf.DNNRegressor([], fc.shared_embeddings(towns, 2), model_dir=str(tmp_path), config=CONFIG)
    estimator.train(visits)
    vectors = [name for name in estimator.get_variable_names() if "embedding" in name]
    assert vectors == ["dnn/input_layer/other_town_shared_embedding/embedding_weights"]


def test_vectors_that_are_not_trainable_stay(tmp_path: Path) -> None:
    columns = [
        fc.embedding_column(COLORS, 2, initializer=tf.initializers.ones, trainable=False),
        fc.embedding_column(fc.categorical_column_with_hash_bucket("color", 5000), 2, trainable=False),
    ]
    for index, column in enumerate(columns):
        estimator = tf.DNNRegressor([3], column, model_dir=str(tmp_path / str(index)), config=CONFIG)
        estimator.train(houses)
        if not index:
            assert (estimator.get_variable_value("dnn/input_layer/color_embedding/embedding_weights") == 1).all()


def network(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    """A model_fn with layers of columns, differentiated by autograd."""
    hidden = fc.input_layer(features, [AREA, VECTORS])
    kernel = tf.get_variable("kernel", (hidden.shape[1], 1))
    outputs = anp.dot(hidden, kernel) + fc.linear_model(features, [COLORS, SIZES, AREA])
    if mode == ModeKeys.PREDICT:
        return EstimatorSpec(mode, predictions=outputs)
    loss = ((outputs[:, 0] - labels) ** 2).mean()
    if mode == ModeKeys.EVAL:
        return EstimatorSpec(mode, loss=loss)
    return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(0.1).minimize(loss))


def test_a_model_fn_has_layers_of_columns(tmp_path: Path) -> None:
    estimator = Estimator(network, str(tmp_path), CONFIG)
    before = estimator.train(houses, steps=1).evaluate(houses)["loss"]
    assert estimator.train(lambda: houses().repeat(), max_steps=80).evaluate(houses)["loss"] < before / 2
    assert "input_layer/color_embedding/embedding_weights" in estimator.get_variable_names()


def test_columns_and_their_functions_travel_to_the_roles(roles: RoleThreads, tmp_path: Path) -> None:  # noqa: F811
    factor = 0.5
    columns = [
        fc.numeric_column("area", normalizer_fn=lambda numbers: numbers * factor),
        fc.crossed_column(["color", TOWN], 5000),
    ]
    there, here = (tf.LinearRegressor(columns, model_dir=str(tmp_path / name), config=CONFIG) for name in ("a", "b"))
    with Attempt(there, tf.TrainSpec(houses), None) as attempt:
        roles.train(cloudpickle.loads(cloudpickle.dumps(attempt.job())))
    here.train(houses)
    weights = "linear/linear_model/area/weights"
    assert there.get_variable_value(weights) == here.get_variable_value(weights) != 0
    rows = [[row["predictions"][0] for row in estimator.predict(houses)] for estimator in (there, here)]
    assert rows[0] == rows[1]


CHANGED: dict[str, tuple[Any, Any, str]] = {
    "vocabulary": (
        COLORS,
        fc.categorical_column_with_vocabulary_list("color", ["green", "red"]),
        r"column 'color' of linear/linear_model: vocabulary is \('green', 'red'\), expected \('red', 'green'\)",
    ),
    "boundaries": (
        SIZES,
        fc.bucketized_column(AREA, [1.0, 2.5]),
        r"column 'area_bucketized' .*: boundaries is \(1.0, 2.5\), expected \(1.0, 2.0\)",
    ),
    "hash_key": (
        fc.crossed_column(["color", "town"], 50),
        fc.crossed_column(["color", "town"], 50, hash_key=1),
        r"column 'color_X_town' .*: hash_key is 1, expected None",
    ),
    "a long vocabulary": (
        fc.categorical_column_with_vocabulary_list("town", range(100)),
        fc.categorical_column_with_vocabulary_list("town", range(99, -1, -1)),
        r"column 'town' .*: vocabulary is 100 values of the digest .*, expected 100 values of the digest",
    ),
    "what a column is made of": (
        fc.indicator_column(TOWN),
        fc.indicator_column(fc.categorical_column_with_identity("town", 3, default_value=0)),
        r"column 'town_indicator' .*: categorical_column.default_value is 0, expected None",
    ),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_column_that_means_something_else_is_refused(what: str, tmp_path: Path) -> None:
    before, after, words = CHANGED[what]
    model_dir = str(tmp_path / "model")
    tf.LinearRegressor(before, model_dir=model_dir, config=CONFIG).train(houses)
    changed = tf.LinearRegressor(after, model_dir=model_dir, config=CONFIG)
    with pytest.raises(ModelDirError, match=words):
        changed.train(houses)
    with pytest.raises(ModelFnError, match=words):
        changed.evaluate(houses)
    with pytest.raises(ModelFnError, match=words):
        list(changed.predict(houses))
    warm = tf.LinearRegressor(after, model_dir=str(tmp_path / "new"), config=CONFIG, warm_start_from=model_dir)
    with pytest.raises(ValueError, match=words):
        warm.train(houses)


def test_a_warm_start_takes_the_weights_of_a_changed_column_where_it_is_told_how(tmp_path: Path) -> None:
    for name, words in (("old", "red\ngreen\n"), ("new", "green\nred\n")):
        (tmp_path / f"{name}.txt").write_text(words)
    weights, model_dir = "linear/linear_model/color/weights", str(tmp_path / "old")
    first = tf.LinearRegressor(COLORS, model_dir=model_dir, config=CONFIG).train(houses)
    info = tf.VocabInfo(str(tmp_path / "new.txt"), 2, 0, str(tmp_path / "old.txt"))
    told = tf.WarmStartSettings(model_dir, var_name_to_vocab_info={weights: info})
    meant = tf.WarmStartSettings(model_dir, [".*"])
    expected = first.get_variable_value(weights)
    for name, settings, rows in (("told", told, expected[::-1]), ("meant", meant, expected)):
        warm = tf.LinearRegressor(
            CHANGED["vocabulary"][1],
            optimizer=GradientDescent(0.0),
            model_dir=str(tmp_path / name),
            config=CONFIG,
            warm_start_from=settings,
        ).train(houses, steps=1)
        assert warm.get_variable_value(weights).tolist() == rows.tolist()


def test_how_a_column_is_learned_may_change(tmp_path: Path) -> None:
    for combiner, initializer in (("mean", None), ("sum", tf.initializers.constant(1.0))):
        column = fc.embedding_column(COLORS, 2, combiner, initializer)
        tf.DNNRegressor([], column, model_dir=str(tmp_path), config=CONFIG).train(houses)


@pytest.mark.parametrize("layer", [fc.input_layer, fc.linear_model])
def test_a_second_layer_has_a_name_of_its_own(layer: Any, tmp_path: Path) -> None:
    def model_fn(features: Any, mode: str, params: Any) -> EstimatorSpec:
        column = fc.embedding_column(COLORS, 2) if layer is fc.input_layer else COLORS
        first, second = layer(features, column), layer(features, column, **params)
        loss = anp.mean((first - second - 1) ** 2)
        return EstimatorSpec(mode, loss=loss, train_op=GradientDescent(0.1).minimize(loss))

    def unlabelled() -> Dataset:
        return Dataset({"color": np.array(["red", "green"])}).batch(2)

    with pytest.raises(
        ModelFnError, match=f"two layers '{layer.__name__}' in one call of model_fn; give one another name="
    ):
        Estimator(model_fn, str(tmp_path / "a"), CONFIG).train(unlabelled)
    named = Estimator(model_fn, str(tmp_path / "b"), CONFIG, {"name": "other"}).train(unlabelled)
    prefixes = {name.split("/")[0] for name in named.get_variable_names()} - {"global_step"}
    assert prefixes == {layer.__name__, "other"}


def test_a_batch_without_examples_has_columns_without_rows() -> None:
    empty = {name: values[:0] for name, values in FEATURES.items()}
    columns = [AREA, SIZES, fc.indicator_column(NAMES["color_weighted_by_w"]), fc.indicator_column(TOWN)]
    assert fc.input_layer(empty, columns).shape == (0, 9)
    assert Transformation(empty).ids(fc.crossed_column(["color", TOWN, SIZES], 9)).ids.shape == (0, 2)
