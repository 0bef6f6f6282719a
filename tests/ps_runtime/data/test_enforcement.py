"""Inputs of a trained model: by name, in the order, dtypes and scaling of its training, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psflow.ps_runtime.data.dataset import Dataset
from psflow.ps_runtime.data.enforcement import Enforcement, check_repeatable, schema_of, unused_sentence
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.npz_arrays import Npz
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, InputSchema, Scaling

ROWS = np.float32([[1, 2, 3], [4, 5, 6]])
TABLE = Dataset({MATRIX: ROWS}, np.array([0, 1]), columns=("a", "b", "c"), label="y")
ARRAYS = Dataset({"n": [1, 2], "x": ROWS}, [0.5, 1.0])


def table(columns: str, **facts: Any) -> Dataset:
    """Return a table that holds the values of `TABLE` under their names; other columns hold -1."""
    values = {"a": ROWS[:, 0], "b": ROWS[:, 1], "c": ROWS[:, 2]}
    matrix = np.stack([values.get(name, np.full(2, -1, np.float32)) for name in columns], axis=1)
    return Dataset({MATRIX: matrix}, facts.pop("labels", [1, 0]), columns=tuple(columns), **facts)


def enforced(data: Dataset, schema: InputSchema | None = None, **options: Any) -> Dataset:
    return Enforcement(schema or TABLE.schema(), "the eval input", **options).dataset(data)


@pytest.mark.parametrize("columns", ["abc", "cba", "xbyca"])
def test_columns_go_by_name(columns: str) -> None:
    unused: list[str] = []
    data = enforced(table(columns), on_unused=unused.extend)
    np.testing.assert_array_equal(data.features[MATRIX], ROWS)
    assert data.columns == TABLE.columns
    assert unused == [name for name in columns if name == "x"]  # y is the label


def test_nothing_is_copied_where_nothing_differs() -> None:
    assert np.shares_memory(enforced(TABLE).features[MATRIX], ROWS)


def test_a_missing_column_is_named_and_no_name_in_use_is_suggested() -> None:
    schema = replace(TABLE.schema(), columns=("age", "age2", "c"))
    given = Dataset({MATRIX: ROWS}, [0, 1], columns=("age", "agee", "c"))
    with pytest.raises(InputError, match=r"^the eval input has no column 'age2'; did you mean 'agee'\?$"):
        enforced(given, schema)
    with pytest.raises(InputError, match=r"^the eval input has no column 'age2'; its columns are 'age', 'c', 'zz'$"):
        enforced(replace(given, columns=("age", "c", "zz")), schema)


def test_a_table_feeds_a_model_of_numbers_by_their_names() -> None:
    schema = schema_of({"b": np.zeros(1), "a": np.zeros(1, np.int32)}, None)
    features = enforced(table("cab"), schema).features
    assert {name: (array.dtype.name, array.tolist()) for name, array in features.items()} == {
        "b": ("float64", [2, 5]),
        "a": ("int32", [1, 4]),
    }


def test_arrays_go_by_name_and_others_are_left_out() -> None:
    data = enforced(Dataset({"z": [0, 0], "x": ROWS, "n": [1, 2]}, [1, 2]), ARRAYS.schema())
    assert list(data.features) == ["n", "x"]


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ({"n": [1, 2]}, "has no feature 'x'; its features are 'n'"),
        ({"n": [1, 2], "x": ROWS[:, :2]}, r"feature 'x' has rows of shape \[2\], expected \[3\]"),
        ({"n": [[1], [2]], "x": ROWS}, r"feature 'n' has rows of shape \[1\], expected \[\]"),
        ({"n": [1, 2.5], "x": ROWS}, r"feature 'n' has 2.5 \(float64\) in row 1, which int64 cannot hold"),
        ({"n": [1, np.nan], "x": ROWS}, r"feature 'n' has nan \(float64\) in row 1, which int64 cannot hold"),
        ({"n": np.uint64([1, 2**64 - 1]), "x": ROWS}, "feature 'n' has 18446744073709551615"),
        (
            {"n": [1, 2], "x": ROWS.astype(np.float64) * 1e300},
            "feature 'x' has 1e[+]300 .* in row 0, which float32 cannot hold",
        ),
        ({"n": ["1", "2"], "x": ROWS}, "feature 'n' has dtype <U1, expected int64"),
        (ROWS, "the eval input is one array: expected the features 'n', 'x' by name"),
    ],
)
def test_what_does_not_fit_is_refused(features: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        enforced(Dataset(features, [1, 2]), ARRAYS.schema())


def test_numbers_take_the_dtype_of_training() -> None:
    data = enforced(Dataset({"n": np.float32([1, 2]), "x": [[True] * 3] * 2}, [1, 2]), ARRAYS.schema())
    assert [array.dtype.name for array in data.features.values()] == ["int64", "float32"]


@pytest.mark.parametrize("trained", [np.zeros((4, 3)), {"x": np.zeros((4, 3))}])
@pytest.mark.parametrize("given", [ROWS, {"x": ROWS}])
def test_a_single_array_needs_no_name(trained: Any, given: Any) -> None:
    features = enforced(Dataset(given), schema_of(trained, None)).features
    assert isinstance(features, dict) == isinstance(trained, dict)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (table("abc", labels=None), "has no labels: expected some as in training, 'y'"),
        (table("abc", labels=[[0, 2], [1, 3]]), r"the label is int64\[2\], expected int64\[\] as in training"),
        (table("abc", labels=["no", "yes"]), r"the label is str\[\], expected int64"),
        (table("abcy", label="t"), "the label is 't', expected 'y' as in training"),
    ],
)
def test_other_labels_are_refused_unless_they_are_not_needed(data: Dataset, words: str) -> None:
    with pytest.raises(InputError, match=words):
        enforced(data)
    assert enforced(data, needs_labels=False).num_records == 2


def test_labels_of_one_column_lose_it_as_in_training() -> None:
    assert enforced(table("abc", labels=[[0], [1]])).labels.tolist() == [0, 1]


def test_labels_may_be_integers_here_and_fractions_there() -> None:
    assert enforced(table("abc", labels=[0.5, 1])).labels.tolist() == [0.5, 1]


# Scaling

PIXELS = replace(TABLE, scaling=Scaling(8, 0, 1))


def test_stored_values_are_scaled_as_in_training() -> None:
    np.testing.assert_array_equal(enforced(TABLE, PIXELS.schema()).features[MATRIX], ROWS / 8)
    assert np.shares_memory(enforced(PIXELS, PIXELS.schema()).features[MATRIX], ROWS)
    assert enforced(replace(TABLE, scaling=Scaling(8, 0, 8))).scaling is None


def test_integers_are_scaled_once_wherever_they_come_from() -> None:
    stored = replace(PIXELS, features={MATRIX: ROWS.astype(np.uint8)}, is_stored=True)
    kept = [
        enforced(stored, stored.schema()),
        enforced(replace(stored, labels=None), PIXELS.schema(), needs_labels=False),
    ]
    assert all(np.shares_memory(one.features[MATRIX], stored.features[MATRIX]) for one in kept), "replicas hold bytes"
    others = [
        enforced(stored, replace(PIXELS.schema(), columns=("c", "a", "b"))),
        enforced(replace(stored, label="z"), PIXELS.schema()),
        enforced(replace(stored, scaling=Scaling(8, 0, 8)), TABLE.schema()),
        enforced(replace(stored, scaling=None, is_stored=False), PIXELS.schema()),
    ]
    expected = [ROWS / 8, ROWS / 8, ROWS[:, [2, 0, 1]] / 8, ROWS / 8, ROWS, ROWS / 8]
    for found, rows in zip([*kept, *others], expected, strict=True):
        np.testing.assert_array_equal(found.read(0, 0, 2)[0][MATRIX], rows)
        assert found.read(0, 0, 2)[0][MATRIX].dtype == np.float32


@pytest.mark.parametrize(
    ("given", "trained", "words"),
    [
        (
            Scaling(8, -1, 1),
            PIXELS,
            r"the eval input is scaled to \[-1, 1\], expected \[0, 1\] as in training; set its",
        ),
        (Scaling(8, 0, 1), TABLE, r"the eval input is scaled to \[0, 1\], expected \[0, 8\] as in training"),
        (None, replace(PIXELS, scaling=Scaling(5, 0, 1)), "'features' has 6.0 in row 1, expected whole numbers from 0"),
    ],
)
def test_another_scaling_is_refused(given: Scaling | None, trained: Dataset, words: str) -> None:
    with pytest.raises(InputError, match=words):
        enforced(replace(TABLE, scaling=given), trained.schema())


# Files: what the model does not read need not be numbers


def test_strings_among_other_columns_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("who,c,y,b,a\nann,3,0,2,1\nbob,6,1,5,4\n")
    schema, unused = TABLE.schema(), []
    read = partial(open_dataset, Csv(path=str(tmp_path / "t.csv"), label="y"))
    opened = open_input(read, enforcement=Enforcement(schema, "the eval input", on_unused=unused.extend))
    np.testing.assert_array_equal(opened.read(0, 0, 2)[0][MATRIX], ROWS)
    assert unused == ["who"]


def test_strings_among_other_arrays_do_not_matter(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", who=["ann", "bob"], x=ROWS, n=[1, 2], labels=[0, 1])
    data = open_dataset(Npz(path=tmp_path / "t.npz"), input_schema=ARRAYS.schema())
    assert (sorted(data.features), data.unused) == (["n", "x"], ("who",))


# Streams


def batches() -> Iterator[tuple[Any, Any]]:
    yield {"z": np.zeros(2), "x": ROWS, "n": np.array([1, 2])}, np.array([0.0, 1.0])
    yield {"x": ROWS[:, :2], "n": np.array([1, 2])}, np.array([0.0, 1.0])


def test_each_batch_of_a_stream_is_held_against_the_schema() -> None:
    unused: list[str] = []
    enforcement = Enforcement(ARRAYS.schema(), "the eval input", on_unused=unused.extend)
    stream = enforcement.batches(enforcement.selected_batches(batches()))
    assert list(next(stream)[0]) == ["n", "x"]
    assert unused == ["z"]
    with pytest.raises(InputError, match=r"batch 1 of the eval input: feature 'x' has rows of shape \[2\]"):
        next(stream)


# What cannot be given again


@pytest.mark.parametrize("features", [np.array([b"ann"]), {"name": np.array([b"ann"]), "x": np.zeros(1)}])
def test_bytes_cannot_be_given_again(features: Any) -> None:
    what = "feature 'name'" if isinstance(features, dict) else "the feature"
    with pytest.raises(
        InputError, match=rf"the train input: {what} has dtype \|S3, which cannot be given to the exported"
    ):
        check_repeatable(schema_of(features, None), "the train input")
    check_repeatable(schema_of(np.zeros((2, 2), bool), np.array([b"yes"])), "labels may be bytes")
    check_repeatable(schema_of({"name": np.array(["ann"])}, None), "text can be given")


def test_a_sentence_about_many_names_is_short() -> None:
    sentence = unused_sentence("t.csv", [f"c{i}" for i in range(12)])
    assert sentence.endswith("'c8', 'c9', ..., which the model does not read: ignored")
