from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from psflow.ps_runtime.data.digits import Digits
from psflow.ps_runtime.data.formats import open_dataset
from psflow.ps_runtime.data.input_pipeline import open_input
from psflow.ps_runtime.data.record_formats import Csv
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import ArraySpec, InputSchema, Scaling
from psflow.tasks.prediction.inputs import PredictionInput, open_rows, prediction_input
from psflow.tasks.prediction.rows import Block

MakeSchema = Callable[..., InputSchema]


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("b,label,a\n1,9,2\n3,9,4\n5,9,6\n")
    return str(path)


def blocks(source: PredictionInput, schema: InputSchema) -> list[Block]:
    data = open_rows(source, schema)
    return [block for part in data.partitions() for block in data.blocks(part, None)]


def read(source: PredictionInput, schema: InputSchema) -> Any:
    """Return all rows of a small input, as the model takes them."""
    [block] = blocks(source, schema)
    return block.rows


def rows(path: str, schema: InputSchema) -> Any:
    return read(prediction_input(path), schema)


def test_columns_of_the_model_in_its_order(table: str, make_schema: MakeSchema) -> None:
    schema = make_schema(("features", (2,)), columns=("a", "b"))
    np.testing.assert_array_equal(rows(table, schema)["features"], [[2, 1], [4, 3], [6, 5]])


def test_a_feature_for_each_column(table: str, make_schema: MakeSchema) -> None:
    given = rows(table, make_schema(("b", ()), ("a", ())))
    assert {name: array.tolist() for name, array in given.items()} == {"b": [1, 3, 5], "a": [2, 4, 6]}


def test_all_columns_for_one_matrix(table: str, make_schema: MakeSchema) -> None:
    assert rows(table, make_schema(("x", (3,))))["x"].tolist() == [[1, 9, 2], [3, 9, 4], [5, 9, 6]]
    assert rows(table, make_schema(("", (3,)))).tolist() == [[1, 9, 2], [3, 9, 4], [5, 9, 6]]


def test_arrays_by_name(tmp_path: Path, make_schema: MakeSchema) -> None:
    path = str(tmp_path / "a.npz")
    np.savez(path, image=np.ones((3, 2, 2)), labels=np.zeros(3))
    assert rows(path, make_schema(("image", (2, 2))))["image"].shape == (3, 2, 2)


def test_digits_by_name(make_schema: MakeSchema) -> None:
    assert len(rows("digits:test", make_schema(("features", (64,))))["features"]) == 360


def test_wrong_shape(table: str, make_schema: MakeSchema) -> None:
    with pytest.raises(InputError, match=r"feature 'x' has rows of shape \[3\], expected \[5\]"):
        open_rows(prediction_input(table), make_schema(("x", (5,))))


def test_missing_feature(make_schema: MakeSchema) -> None:
    with pytest.raises(InputError, match="digits:test has no feature 'x'; its features are 'features'"):
        open_rows(prediction_input("digits:test"), make_schema(("x", (64,))))


def test_missing_column(table: str, make_schema: MakeSchema) -> None:
    with pytest.raises(InputError, match="has no column 'c'"):
        open_rows(prediction_input(table), make_schema(("features", (2,)), columns=("a", "c")))


def test_several_arrays_for_a_model_that_reads_one(tmp_path: Path, make_schema: MakeSchema) -> None:
    path = str(tmp_path / "a.npz")
    np.savez(path, a=np.ones(3), b=np.ones(3))
    with pytest.raises(InputError, match="has 2 arrays, expected one"):
        open_rows(prediction_input(path), make_schema(("", ())))


def test_a_suffix_that_no_format_has(tmp_path: Path, make_schema: MakeSchema) -> None:
    (tmp_path / "rows.txt").write_text("a\n1\n")
    with pytest.raises(
        InputError,
        match=r"rows.txt: expected a file that ends in .csv, .tsv, .parquet, .*, .npz, -ubyte, -ubyte.gz; or set",
    ):
        prediction_input(str(tmp_path / "rows.txt"))
    source = prediction_input(str(tmp_path / "rows.txt"), Csv)
    assert open_rows(source, make_schema(("features", (1,)), columns=("a",))).num_records == 1


def test_a_suffix_in_capitals_is_that_of_its_format(tmp_path: Path) -> None:
    (tmp_path / "rows.CSV").write_text("a\n1\n")
    assert prediction_input(str(tmp_path / "rows.CSV")).kind is Csv


def test_columns_that_a_format_gives_in_another_order(table: str, make_schema: MakeSchema) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Whole(Csv):
        @classmethod
        def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
            return cls(path=location)

    schema = make_schema(("features", (2,)), columns=("a", "b"))
    source = prediction_input(table, Whole)
    assert read(source, schema)["features"].tolist() == [[2, 1], [4, 3], [6, 5]]
    assert open_rows(source, schema).unused == ("label",)


def test_the_prefix_of_a_format_is_taken_off_where_the_format_is_named_too(make_schema: MakeSchema) -> None:
    assert prediction_input("digits:test", Digits) == prediction_input("digits:test")
    assert open_rows(prediction_input("digits:test", Digits), make_schema(("features", (64,)))).num_records == 360


def scaled(num_pixels: int) -> InputSchema:
    """Return the schema of images that a training has scaled to [0, 1]."""
    columns = tuple(f"pixel_{i // 2}_{i % 2}" for i in range(num_pixels))
    form = ArraySpec("features", "float32", (num_pixels,))
    return InputSchema((form,), columns=columns, scaling=Scaling(255, 0, 1))


@pytest.mark.parametrize("name", ["t10k-images-idx3-ubyte", "idx:images"])
def test_images_are_read_as_they_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name.removeprefix("idx:")).write_bytes(b"\0\0\x08\3" + b"\0\0\0\2" * 3 + bytes(range(248, 256)))
    assert rows(name, scaled(4))["features"].tolist() == [[248, 249, 250, 251], [252, 253, 254, 255]]


def test_pixels_in_a_table_are_those_that_are_stored_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "pixels.csv"
    path.write_text("pixel_0_1,pixel_0_0\n0,255\n")
    assert rows(str(path), scaled(2))["features"].tolist() == [[255, 0]]
    path.write_text("pixel_0_1,pixel_0_0\n0,255\n0,0.5\n")
    words = r"feature 'features' has 0.5 in row 1, expected whole numbers from 0 to 255, as they are stored"
    with pytest.raises(InputError, match=words):
        open_rows(prediction_input(str(path)), scaled(2))


def test_an_id_of_any_size_is_the_one_that_is_written(tmp_path: Path) -> None:
    path = tmp_path / "ids.csv"
    path.write_text(f"user\n16777216\n16777219\n{2**60 + 1}\n")
    schema = InputSchema((ArraySpec("user", "int64", ()),))
    users = rows(str(path), schema)["user"]
    assert (users.tolist(), users.dtype) == ([16777216, 16777219, 2**60 + 1], np.int64)
    path.write_text("user\n16777219.5\n")
    with pytest.raises(InputError, match=r"'user' has 16777219.5 \(float64\) in row 0, which int64 cannot hold"):
        open_rows(prediction_input(str(path)), schema)


def test_rows_of_a_model_that_preprocesses_are_as_the_files_have_them_with_their_keys(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("id,job,age,pay\n7,Sales,20,0\n8,Law,40,1\n")
    trained = open_input(partial(open_dataset, Csv(path=str(path), label="pay", key_columns=["id"])))
    schema = trained.schema()
    later = tmp_path / "later.csv"
    later.write_text("more,age,id,job\nx,30,007,Law\ny,,,Art\n")
    source = prediction_input(str(later))
    assert open_rows(source, schema).unused == ("more",)
    [block] = blocks(source, schema)
    assert block.rows.to_pylist() == [{"job": "Law", "age": 30}, {"job": "Art", "age": None}]
    assert block.keys.to_pylist() == [{"id": "007"}, {"id": None}]
    later.write_text("age,job,pay\n30,Law,1\n")
    found = open_rows(source, schema)
    assert (found.keys, found.unused) == ((), ())


def test_a_key_column_that_is_not_there_in_training_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("id,a,y\n7,1,0\n")
    with pytest.raises(InputError, match="has no key column 'ids'; did you mean 'id'"):
        open_input(partial(open_dataset, Csv(path=str(path), label="y", key_columns=["ids"])))


def test_arrays_are_no_input_of_a_model_that_reads_columns(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y\n1,0\n")
    schema = open_input(partial(open_dataset, Csv(path=str(tmp_path / "t.csv"), label="y"))).schema()
    np.savez(tmp_path / "a.npz", a=np.ones(3))
    with pytest.raises(InputError, match=r"a\.npz has arrays: expected columns by name, as in CSV or Parquet"):
        open_rows(prediction_input(str(tmp_path / "a.npz")), schema)
