from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from psflow.ps_runtime.data.csv_table import Csv
from psflow.ps_runtime.errors import InputError
from psflow.tasks.prediction.inputs import prediction_input, read_input, rows_of, same_input
from psflow.tasks.prediction.model import ModelInfo

MakeInfo = Callable[..., ModelInfo]


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text("b,label,a\n1,9,2\n3,9,4\n5,9,6\n")
    return str(path)


def rows(path: str, model: ModelInfo, start: int = 0, stop: int = 3) -> Any:
    return rows_of(read_input(prediction_input(path), model), start, stop, model)


def test_columns_of_the_model_in_its_order(table: str, model_info: MakeInfo) -> None:
    model = model_info(("features", (2,)), columns=("a", "b"))
    np.testing.assert_array_equal(rows(table, model, 1)["features"], [[4, 3], [6, 5]])


def test_a_feature_for_each_column(table: str, model_info: MakeInfo) -> None:
    given = rows(table, model_info(("b", ()), ("a", ())))
    assert {name: array.tolist() for name, array in given.items()} == {"b": [1, 3, 5], "a": [2, 4, 6]}


def test_all_columns_for_one_matrix(table: str, model_info: MakeInfo) -> None:
    assert rows(table, model_info(("x", (3,))))["x"].tolist() == [[1, 9, 2], [3, 9, 4], [5, 9, 6]]
    assert rows(table, model_info(("", (3,)))).tolist() == [[1, 9, 2], [3, 9, 4], [5, 9, 6]]


def test_arrays_by_name(tmp_path: Path, model_info: MakeInfo) -> None:
    path = str(tmp_path / "a.npz")
    np.savez(path, image=np.ones((3, 2, 2)), labels=np.zeros(3))
    assert rows(path, model_info(("image", (2, 2))))["image"].shape == (3, 2, 2)


def test_digits_by_name(model_info: MakeInfo) -> None:
    assert len(rows("digits:test", model_info(("features", (64,))), 0, 100)["features"]) == 100


def test_wrong_shape(table: str, model_info: MakeInfo) -> None:
    with pytest.raises(InputError, match=r"feature 'x' has rows of shape \[3\], expected \[5\]"):
        read_input(prediction_input(table), model_info(("x", (5,))))


def test_missing_feature(model_info: MakeInfo) -> None:
    with pytest.raises(InputError, match="digits:test: feature 'x' is missing"):
        read_input(prediction_input("digits:test"), model_info(("x", (64,))))


def test_missing_column(table: str, model_info: MakeInfo) -> None:
    with pytest.raises(InputError, match="has no column 'c'"):
        read_input(prediction_input(table), model_info(("features", (2,)), columns=("a", "c")))


def test_several_arrays_for_a_model_that_reads_one(tmp_path: Path, model_info: MakeInfo) -> None:
    path = str(tmp_path / "a.npz")
    np.savez(path, a=np.ones(3), b=np.ones(3))
    with pytest.raises(InputError, match="has 2 arrays, expected one"):
        read_input(prediction_input(path), model_info(("", ())))


def test_input_that_changes(table: str, model_info: MakeInfo) -> None:
    model = model_info(("features", (2,)), columns=("a", "b"))
    source = prediction_input(table)
    digest = read_input(source, model).digest()
    assert same_input(source, model, digest).num_records == 3
    with pytest.raises(InputError, match="has changed, or differs on this Dask worker"):
        same_input(source, model, "0" * 32)


def test_a_suffix_that_no_format_has(tmp_path: Path, model_info: MakeInfo) -> None:
    (tmp_path / "rows.txt").write_text("a\n1\n")
    with pytest.raises(InputError, match=r"rows.txt: expected a file that ends in .csv, .tsv, .npz; or say which"):
        prediction_input(str(tmp_path / "rows.txt"))
    source = prediction_input(str(tmp_path / "rows.txt"), Csv)
    assert read_input(source, model_info(("features", (1,)), columns=("a",))).num_records == 1


def test_columns_that_a_format_gives_in_another_order(table: str, model_info: MakeInfo) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Whole(Csv):
        @classmethod
        def for_prediction(cls, location: str, columns: Sequence[str], arrays: Sequence[str]) -> Self:
            return cls(path=location)

    with pytest.raises(InputError, match=r"rows.csv: expected the columns a, b, label, got b, label, a"):
        read_input(prediction_input(table, Whole), model_info(("features", (3,)), columns=("a", "b", "label")))
