"""Input schemas as plain data, and the differences of two inputs."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema, Scaling

MATRIX = ArraySpec("features", "float32", (2,))
SCHEMA = InputSchema((MATRIX,), (ArraySpec("", "int64", ()),), ("a", "b"), "y", Scaling(255, 0, 1))
ARRAYS = InputSchema((ArraySpec("x", "float32", ()), ArraySpec("z", "int64", (3,))))


IDS = InputSchema((ArraySpec("word", "int64", (), 9, 4), ArraySpec("x", "float32", ())))


WEIGHED = replace(IDS, weight_column="x")


PART = IDS.narrowed({"word"})


@pytest.mark.parametrize("schema", [SCHEMA, ARRAYS, IDS, WEIGHED, PART, WEIGHED.narrowed({"word"})])
def test_it_travels_as_plain_data(schema):
    assert InputSchema.from_facts(json.loads(json.dumps(schema.to_facts()))) == schema


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (replace(SCHEMA, columns=("b", "a")), "the columns are in another order: column 1 is 'b', expected 'a'"),
        (replace(SCHEMA, columns=("a", "c")), "column 'b' is missing; column 'c' is new"),
        (replace(SCHEMA, columns=()), "the columns have no names"),
        (replace(SCHEMA, label="t"), "the label is 't', expected 'y'"),
        (replace(SCHEMA, labels=(ArraySpec("", "float32", (1,)),)), "label '' is float32[1], expected int64[]"),
        (replace(SCHEMA, scaling=Scaling(255, -1, 1)), "the features are scaled to [-1, 1], expected [0, 1]"),
        (replace(SCHEMA, scaling=None), "the features are scaled to nothing, expected [0, 1]"),
        (
            replace(SCHEMA, features=(replace(MATRIX, dtype="float64"),)),
            "feature 'features' is float64[2], expected float32[2]",
        ),
        (replace(SCHEMA, features=(replace(MATRIX, name="x"),)), "feature 'features' is missing; feature 'x' is new"),
    ],
)
def test_each_difference_is_a_sentence(other, line):
    assert "; ".join(SCHEMA.differences(other)) == line
    assert not SCHEMA.differences(replace(SCHEMA, labels=(ArraySpec("", "float32", ()),)))


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (ArraySpec("word", "int64", (), 12, 4), "int64[] of 12 ids, embedding 4"),
        (ArraySpec("word", "int64", (), 9), "int64[] of 9 ids"),
        (ArraySpec("word", "int64", ()), "int64[]"),
    ],
)
def test_other_ids_are_a_difference(other, found):
    lines = IDS.differences(replace(IDS, features=(other, IDS.features[1])))
    assert lines == [f"feature 'word' is {found}, expected int64[] of 9 ids, embedding 4"]


def test_columns_of_a_table_are_those_of_training_or_one_for_each_number():
    assert SCHEMA.table_columns == ("a", "b")
    assert ARRAYS.table_columns == ()
    assert replace(ARRAYS, features=ARRAYS.features[:1]).table_columns == ("x",)


@pytest.mark.parametrize("largest", [16, 255])
def test_scaling_to_0_to_1_is_division_to_the_last_bit(largest):
    stored = np.arange(largest + 1, dtype=np.uint8)
    expected = stored.astype(np.float32)
    expected /= largest
    assert Scaling(largest, 0, 1).apply(stored).tobytes() == expected.tobytes()


@pytest.mark.parametrize("stored", [np.uint8([[0, 255]]), np.float64([[3, 7]]), np.int64([[1, 1]])])
def test_stored_values_have_no_fault(stored):
    assert Scaling(255, -1, 1).fault(stored) is None
    assert Scaling(255, -1, 1).stored.apply(stored).tolist() == stored.tolist()


@pytest.mark.parametrize("value", [0.5, -1, 256])
def test_what_cannot_be_stored_is_named_with_its_row(value):
    assert Scaling(255, 0, 1).fault(np.array([[1, 2], [3, value]])).startswith(f"has {value!r} in row 1")


def test_cells_that_are_not_finite_are_left_to_the_policy_of_the_input():
    stored = np.array([[1, np.nan], [np.inf, 2]])
    scaling = Scaling(2, 0, 1)
    assert scaling.fault(stored) is None
    np.testing.assert_array_equal(scaling.apply(stored), np.float32([[0.5, np.nan], [np.inf, 1]]))


RECORDS = InputSchema(ARRAYS.features, preprocessing=Preprocessing((), (), weight=Column(RawColumn("z", "f"), "f")))


def test_a_feature_that_is_the_weights_is_read_in_training_alone():
    assert IDS.weighted_by("x", "the train input") == WEIGHED
    assert WEIGHED.weight == "x"
    assert WEIGHED.for_prediction().names == ("word",)
    assert WEIGHED.for_prediction().weight == "x"
    assert IDS.for_prediction() == IDS


@pytest.mark.parametrize("schema", [IDS, WEIGHED, RECORDS])
def test_where_nobody_sets_the_weights_the_input_says_them(schema):
    assert schema.weighted_by(None, "the train input") is schema
    assert schema.weighted_by(schema.weight, "the train input") is schema


@pytest.mark.parametrize(
    ("schema", "name", "words"),
    [
        (IDS, "w", "weight_column is 'w', but the features of the train input are 'word', 'x'"),
        (IDS, "word", "weight_column 'word' of the train input is int64.* of 9 ids, embedding 4, expected one number"),
        (ARRAYS, "z", r"weight_column 'z' of the train input is int64\[3\], expected one number a row"),
        (InputSchema((ArraySpec("", "float32", (2,)),)), "w", "of the train input are an array without a name"),
        (
            RECORDS,
            "x",
            "weight_column is 'x', but the weights of the train input are 'z': the input of tabular files na",
        ),
        (
            replace(RECORDS, preprocessing=Preprocessing((), ())),
            "x",
            "the weights of the train input are none: the input of tabular",
        ),
    ],
)
def test_weights_that_are_none_of_the_input_are_refused(schema, name, words):
    with pytest.raises(InputError, match=words):
        schema.weighted_by(name, "the train input")


def test_a_part_of_it_remembers_the_whole():
    assert PART.names == ("word",)
    assert PART.whole is IDS.whole is IDS
    assert PART.narrowed({"x"}).names == ("x",)
    assert PART.narrowed({"x", "word"}) is IDS
    own = ArraySpec("group", "int64", ())
    assert PART.narrowed({"x", "group"}, [own]).features == (IDS.features[1], own)
    assert not PART.differences(IDS.narrowed({"word"}))
    assert not PART.differences(InputSchema((*IDS.features[:1], ArraySpec("row", "int64", ()))).narrowed({"word"}))
    matrix_apart = replace(SCHEMA, features=(MATRIX, ArraySpec("id", "int64", ()))).narrowed({"id"})
    assert (matrix_apart.columns, matrix_apart.scaling, matrix_apart.label) == ((), None, "y")
    assert WEIGHED.narrowed({"word"}).weight is None
