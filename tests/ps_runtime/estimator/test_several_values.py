"""Cells of several values, from files to predictions: text that is split, and lists of Parquet and JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psflow import Dataset, LinearRegressor, RunConfig, feature_column
from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.record_formats import Csv, JsonLinesInput, ParquetInput
from psflow.ps_runtime.errors import InputError, ModelDirError

CONFIG = RunConfig(tf_random_seed=1, save_checkpoints_steps=10_000, log_step_count_steps=None)
WORDS = ["red", "green", "blue"]
ROWS = [
    (["red", "blue"], [1.0, 2.0], 1.0),
    ([], [], 0.0),
    (["green"], [0.5], 2.0),
    (["blue", "red", "grey"], [3.0, 1.0, 1.0], 3.0),
]


def csv_file(folder: Path) -> Any:
    lines = [f"{'|'.join(tags)},{'|'.join(map(str, weights))},{label}" for tags, weights, label in ROWS]
    (folder / "t.csv").write_text("\n".join(["tags,amounts,y", *lines]))
    return Csv(str(folder / "t.csv"), label="y", columns={"tags": options("|")})


def parquet_file(folder: Path) -> Any:
    tags, amounts, labels = zip(*ROWS, strict=True)
    pq.write_table(pa.table({"tags": tags, "amounts": amounts, "y": labels}), folder / "t.parquet")
    return ParquetInput(str(folder / "t.parquet"), label="y", columns={"tags": options()})


def json_file(folder: Path) -> Any:
    lines = [json.dumps({"tags": tags, "amounts": amounts, "y": label}) for tags, amounts, label in ROWS]
    (folder / "t.jsonl").write_text("\n".join(lines))
    return JsonLinesInput(str(folder / "t.jsonl"), label="y", columns={"tags": options()})


def options(separator: str | None = None, max_values: int = 3) -> ColumnOptions:
    return ColumnOptions(vocabulary=WORDS, max_values=max_values, separator=separator, weights="amounts")


def trained(given: Any, folder: Path) -> LinearRegressor:
    estimator = LinearRegressor(model_dir=str(folder / "model"), config=CONFIG, sparse_combiner="mean")
    estimator.train(lambda: given.read().batch(2).repeat(), max_steps=8)
    return estimator


@pytest.mark.parametrize("write", [csv_file, parquet_file, json_file])
def test_files_train_what_columns_in_python_do(write: Any, tmp_path: Path) -> None:
    estimator = trained(write(tmp_path), tmp_path)
    weights = estimator.get_variable_value("linear/linear_model/tags/weights")

    tags = feature_column.categorical_column_with_vocabulary_list("tags", WORDS, num_oov_buckets=1)
    column = feature_column.weighted_categorical_column(tags, "amounts")
    padded = {"tags": [[*row[0], "", "", ""][:3] for row in ROWS], "amounts": [[*row[1], 0, 0, 0][:3] for row in ROWS]}
    features = {"tags": np.array(padded["tags"]), "amounts": np.float32(padded["amounts"])}
    labels = np.float32([label for *_, label in ROWS])
    same = LinearRegressor(column, model_dir=str(tmp_path / "same"), config=CONFIG, sparse_combiner="mean")
    same.train(lambda: Dataset(features, labels).batch(2).repeat(), max_steps=8)
    expected = same.get_variable_value("linear/linear_model/tags_weighted_by_amounts/weights")
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert (weights != 0).all()

    predictions = [row["predictions"][0] for row in estimator.predict(lambda: write(tmp_path).read())]
    own = [row["predictions"][0] for row in same.predict(lambda: features)]
    np.testing.assert_allclose(predictions, own, rtol=1e-6)


def test_a_cell_of_too_many_values_is_named_with_its_file_and_row(tmp_path: Path) -> None:
    given = csv_file(tmp_path)
    estimator = trained(given, tmp_path)
    (tmp_path / "more.csv").write_text("tags,amounts,y\nred,1,1\nred|red|red|red,1|1|1|1,2\n")
    with pytest.raises(InputError, match=r"more.csv.*column 'tags', row 3 .*at most 3 values, got 4; raise max_values"):
        estimator.evaluate(lambda: Csv(str(tmp_path / "more.csv")).read())


def test_a_job_resumes_with_the_same_number_of_values(tmp_path: Path) -> None:
    given = csv_file(tmp_path)
    estimator = trained(given, tmp_path)
    wider = Csv(str(tmp_path / "t.csv"), label="y", columns={"tags": options("|", max_values=4)})
    with pytest.raises(ModelDirError, match="column 'tags' has max values 4, expected 3"):
        estimator.train(lambda: wider.read().batch(2).repeat(), max_steps=9)


NO_VALUES: list[tuple[list[Any], list[Any]]] = [([[], []], [[], []]), ([[None], []], [[1.0], []])]


@pytest.mark.parametrize("write", [parquet_file, json_file])
@pytest.mark.parametrize(("tags", "amounts"), NO_VALUES)
def test_files_whose_lists_have_no_value_are_predicted(write: Any, tags: Any, amounts: Any, tmp_path: Path) -> None:
    estimator = trained(write(tmp_path), tmp_path)
    pq.write_table(pa.table({"tags": tags, "amounts": amounts}), tmp_path / "blank.parquet")
    lines = [json.dumps({"tags": own, "amounts": of_own}) for own, of_own in zip(tags, amounts, strict=True)]
    (tmp_path / "blank.jsonl").write_text("\n".join(lines))
    blank = (
        ParquetInput(str(tmp_path / "blank.parquet"))
        if write is parquet_file
        else JsonLinesInput(str(tmp_path / "blank.jsonl"))
    )
    bias = estimator.get_variable_value("linear/linear_model/bias_weights")
    assert [row["predictions"] for row in estimator.predict(lambda: blank.read())] == [bias, bias]


@pytest.mark.parametrize("write", [parquet_file, json_file])
def test_some_files_of_an_input_may_have_no_value_in_their_lists(write: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [[], [None]], "amounts": [[], [1.0]], "y": [1.0, 2.0]}), tmp_path / "u.parquet")
    (tmp_path / "u.jsonl").write_text('{"tags": [], "amounts": [], "y": 1.0}\n')
    given = write(tmp_path)
    given = replace(given, path=[given.path, given.path.replace("t.", "u.")])
    assert trained(given, tmp_path).get_variable_value("global_step") == 8
