"""Features that are ids: declared with the records, part of the schema, held against every later input."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import Enforcement
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, ArraySpec

WORDS = np.array([0, 2, 1, 2])
AGES = np.float32([20, 30, 40, 50])
TRAINED = Dataset({"word": WORDS, "age": AGES}, [0, 1, 0, 1], num_ids={"word": 3}, embedding={"word": 2})


def enforced(data: Dataset) -> Dataset:
    return Enforcement(TRAINED.schema(), "the eval input").dataset(data)


def test_a_declaration_is_part_of_the_schema() -> None:
    word, age = TRAINED.schema().features
    assert word == ArraySpec("word", "int64", (), num_ids=3, embedding=2)
    assert age == ArraySpec("age", "float32", ())
    assert pickle.loads(pickle.dumps(TRAINED)).batch(2).schema() == TRAINED.schema()


def test_numbers_of_numpy_become_plain_ones() -> None:
    data = Dataset({"word": WORDS}, num_ids={"word": np.int64(3)}, embedding={"word": np.int8(2)})
    assert (type(data.num_ids["word"]), type(data.embedding["word"])) == (int, int)


@pytest.mark.parametrize(
    ("features", "declared", "words"),
    [
        ({"word": [0, 3]}, {"num_ids": {"word": 3}}, r"'word'\] has the id 3 in row 1, expected ids in \[0, 3\)"),
        ({"word": [-1, 0]}, {"num_ids": {"word": 3}}, r"has the id -1 in row 0"),
        ({"word": [[0, 1], [0, 7]]}, {"num_ids": {"word": 3}}, r"has the id 7 in row 1"),
        ({"word": [0.0, 1.0]}, {"num_ids": {"word": 3}}, "has dtype float64: expected integers, as it is declared as"),
        ({"word": [0]}, {"num_ids": {"wort": 3}}, "num_ids names 'wort': .* did you mean 'word'"),
        ([0, 1], {"num_ids": {"word": 3}}, "num_ids names 'word': expected a feature with a name"),
        ({"word": [0]}, {"num_ids": {"word": 0}}, "num_ids of 'word' is 0: expected an int >= 1"),
        ({"word": [0]}, {"num_ids": {"word": True}}, "num_ids of 'word' is True: expected an int >= 1"),
        ({"word": [0]}, {"num_ids": 3}, "num_ids is 3: expected a dict from names of features to ints"),
        ({"word": [0]}, {"embedding": {"word": 3}}, "embedding names 'word': expected its num_ids, too"),
        ({"word": [0]}, {"num_ids": {"word": 1}, "embedding": {"word": 2.5}}, "embedding of 'word' is 2.5"),
    ],
)
def test_what_cannot_be_ids_is_refused(features: Any, declared: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Dataset(features, **declared)


@pytest.mark.parametrize(
    "features",
    [
        {"word": WORDS, "age": AGES},
        {"word": WORDS.astype(np.float64), "age": AGES},
        {"age": AGES, "word": WORDS.astype(np.uint8), "extra": WORDS},
    ],
    ids=["as in training", "floats", "beside others"],
)
def test_an_input_without_a_declaration_gets_that_of_training(features: Any) -> None:
    assert enforced(Dataset(features, TRAINED.labels)).schema() == TRAINED.schema()


def test_a_declaration_of_what_the_model_does_not_read_is_left_out() -> None:
    data = Dataset({**TRAINED.features, "extra": WORDS}, TRAINED.labels, num_ids={"extra": 3})
    assert enforced(data).schema() == TRAINED.schema()


@pytest.mark.parametrize("value", [3, -1])
def test_an_id_that_training_does_not_have_is_named_with_its_row(value: int) -> None:
    words = np.array([0, 1, value, 0])
    expected = rf"the eval input: feature 'word' has the id {value} in row 2, expected ids in \[0, 3\) as in training"
    with pytest.raises(InputError, match=expected):
        enforced(Dataset({"word": words, "age": AGES}, TRAINED.labels))
    batches = iter([({"word": WORDS, "age": AGES}, TRAINED.labels), ({"word": words, "age": AGES}, TRAINED.labels)])
    stream = Enforcement(TRAINED.schema(), "the eval input").batches(batches)
    next(stream)
    with pytest.raises(InputError, match=rf"batch 1 of the eval input: feature 'word' has the id {value} in row 2"):
        next(stream)


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ({"num_ids": {"word": 4}, "embedding": {"word": 2}}, r"int64\[\] of 4 ids, embedding 2"),
        ({"num_ids": {"word": 3}}, r"int64\[\] of 3 ids"),
    ],
)
def test_another_declaration_than_that_of_training_is_refused(declared: dict[str, Any], found: str) -> None:
    words = (
        rf"feature 'word' is {found}, expected int64\[\] of 3 ids, embedding 2 as in training; declare it in the same"
    )
    with pytest.raises(InputError, match=words):
        enforced(Dataset(TRAINED.features, TRAINED.labels, **declared))


def test_numbers_of_training_are_no_ids_later() -> None:
    numbers = Dataset({"word": WORDS, "age": AGES}, TRAINED.labels)
    words = r"feature 'word' is int64\[\] of 3 ids.*, expected int64\[\] as in training"
    with pytest.raises(InputError, match=words):
        Enforcement(numbers.schema(), "the eval input").dataset(TRAINED)


def test_columns_of_a_table_are_ids_if_the_model_reads_ids() -> None:
    table = np.stack([AGES, WORDS.astype(np.float32)], axis=1)
    data = enforced(Dataset({MATRIX: table}, TRAINED.labels, columns=("age", "word")))
    assert data.schema() == TRAINED.schema()
    assert data.features["word"].tolist() == WORDS.tolist()
    table[1, 1] = 3
    with pytest.raises(InputError, match="feature 'word' has the id 3 in row 1"):
        enforced(Dataset({MATRIX: table}, TRAINED.labels, columns=("age", "word")))
