"""An export of a model of tabular files: raw rows in, through the library and through the server's own function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.scoring_server import invocations

from psflow.ps_runtime.columns.options import ColumnOptions
from psflow.ps_runtime.data.record_formats import Csv, LibSvm, ParquetInput
from psflow.ps_runtime.model.canned.class_heads import ClassifierSpec
from psflow.ps_runtime.model.canned.dnn import dnn_model
from psflow.tasks.exports.writer import MlflowModelWriter
from tests.tasks.exports.test_writer import agree, bundle_of

ROWS = """id,age,hours,rate,job,smokes,born,secret,pay
1,26,41,0.5,clerk,true,1999-02-03,zebra,0
2,42,,1.5,smith,false,1980-01-01,yak,1
3,30,20,2,?,true,1990-12-31,zebra,0
4,51,38,0.25,clerk,false,1970-05-06,gnu,1
"""
COLUMNS = {
    "age": ColumnOptions(normalize="standard"),
    "hours": ColumnOptions(impute="median", indicator=True),
    "born": ColumnOptions(type="number", normalize="standard"),
    "secret": ColumnOptions(hash_buckets=8),
}
PARAMS = {"hidden_units": (16,), "activation_fn": "relu", "dropout": None, "head": ClassifierSpec(2)}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What training on some rows leaves, with the features of these."""
    path = tmp_path_factory.mktemp("rows") / "people.csv"
    path.write_text(ROWS)
    data = Csv(path=str(path), label="pay", key_columns=["id"], columns=COLUMNS, na_values=["?"]).read()
    opened = data.learn("keep", "the train input")
    return bundle_of(dnn_model, opened.read(0, 0, 4)[0], PARAMS, opened.schema())


@pytest.fixture(scope="module")
def model(bundle: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("export") / "model"
    MlflowModelWriter().write(str(path), bundle)
    return mlflow.pyfunc.load_model(str(path))


@pytest.fixture
def rows() -> pd.DataFrame:
    text = [line.split(",") for line in ROWS.splitlines()]
    frame = pd.DataFrame(text[1:], columns=text[0])
    numbers = {name: pd.to_numeric(frame[name]) for name in ("age", "hours", "rate", "id")}  # hours are floats with NaN
    return frame.assign(**numbers, smokes=frame["smokes"] == "true", born=pd.to_datetime(frame["born"]))


def served(model: Any, **body: Any) -> Any:
    """Return what a server makes of a body of JSON."""
    answer = invocations(json.dumps(body), "application/json", model, model.metadata.get_input_schema())
    assert answer.status == 200
    return json.loads(answer.response)["predictions"]


def as_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    records = rows.assign(born=rows["born"].dt.strftime("%Y-%m-%d")).to_dict("records")
    return [{name: None if value != value else value for name, value in record.items()} for record in records]


def test_raw_rows_are_predicted_as_in_training(bundle: Any, model: Any, rows: pd.DataFrame) -> None:
    agree(model.predict(rows), bundle.predictions)
    agree(model.predict(rows[reversed(rows.columns)].astype({"age": "int32", "rate": "float32"})), bundle.predictions)


def test_a_server_predicts_raw_rows_as_in_training(bundle: Any, model: Any, rows: pd.DataFrame) -> None:
    records = as_json(rows)
    agree(served(model, dataframe_records=records), bundle.predictions)
    split = {"columns": list(records[0]), "data": [list(record.values()) for record in records]}
    agree(served(model, dataframe_split=split), bundle.predictions)
    one = served(model, dataframe_records=records[1:2])
    agree(
        one, {name: value[1:2] for name, value in bundle.predictions.items()}, rtol=1e-5
    )  # numpy has a way for one row


def test_a_fraction_among_whole_numbers_stays_one(model: Any, rows: pd.DataFrame) -> None:
    """Of a column that its signature calls long, MLflow makes 26 of it."""
    [whole, *_] = as_json(rows)
    half = served(model, dataframe_records=[{**whole, "age": 26.5}])
    assert half != served(model, dataframe_records=[whole])
    agree(half, model.predict(rows[:1].assign(age=26.5)))


def test_the_signature_has_raw_columns_and_says_which_may_be_missing(model: Any) -> None:
    inputs = model.metadata.get_input_schema()
    kinds = {column.name: (str(column.type), column.required) for column in inputs.inputs}
    assert kinds["job"] == ("Any", False)
    assert kinds["hours"] == ("Any", False)
    assert [name for name, (_, required) in kinds.items() if required] == ["age", "rate", "smokes", "born", "secret"]
    types = {"age": "int64", "hours": "int64", "rate": "float64", "job": "string", "smokes": "bool", "born": "date"}
    assert model.metadata.metadata["psflow"]["columns"] == {**types, "secret": "string"}


def test_the_input_example_is_made_up_and_can_be_predicted(model: Any) -> None:
    first, second = model.input_example.to_dict("records")
    assert first == {
        "age": 37,
        "hours": 38,
        "rate": 1.0,
        "job": "clerk",
        "smokes": False,
        "born": "1985-02-08",
        "secret": "word",
    }
    assert {name for name, value in second.items() if pd.isna(value)} == {"hours", "job"}
    found = model.predict(model.input_example)
    assert all(len(values) == 2 for values in found.values())
    assert np.isfinite(found["logits"]).all()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"age": "old"}, "column 'age', row 0 (counted from 0): expected a whole number, got 'old'"),
        ({"hours": "many"}, "column 'hours', row 0 (counted from 0): expected a whole number, got 'many'"),
        ({"job": 5}, "column 'job', row 0 (counted from 0): expected text, got 5"),
        ({"smokes": "perhaps"}, "column 'smokes', row 0 (counted from 0): expected true or false, got 'perhaps'"),
        ({"born": 2026}, "column 'born', row 0 (counted from 0): expected a day such as 2026-01-31, got 2026"),
    ],
)
def test_a_caller_reads_a_sentence_and_no_traceback(
    model: Any, rows: pd.DataFrame, changes: dict[str, Any], fault: str
) -> None:
    with pytest.raises(MlflowException) as caught:
        served(model, dataframe_records=[{**as_json(rows)[0], **changes}])
    assert caught.value.get_http_status_code() == 400
    answer = json.loads(caught.value.serialize_as_json())
    assert answer["message"].endswith(f"Error: {fault}")
    assert "stack_trace" not in answer


@pytest.mark.parametrize(("name", "fault"), [("age", "Model is missing inputs ['age']"), ("job", "column 'job'")])
def test_a_column_that_is_missing_is_named(model: Any, rows: pd.DataFrame, name: str, fault: str) -> None:
    record = as_json(rows)[0]
    del record[name]
    with pytest.raises(MlflowException) as caught:
        served(model, dataframe_records=[record])
    assert caught.value.get_http_status_code() == 400
    assert fault in caught.value.message


def test_arrays_come_as_lists(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("0 1:0.5\n1 3:2\n")
    opened = LibSvm(path=str(tmp_path / "a.svm")).read().learn("error", "the train input")
    bundle = bundle_of(dnn_model, opened.read(0, 0, 2)[0], PARAMS, opened.schema())
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    lists = [[0.5, 0, 0], [0, 0, 2]]
    agree(served(model, dataframe_records=[{"features": values} for values in lists]), bundle.predictions)
    agree(model.predict(pd.DataFrame({"features": lists})), bundle.predictions)
    assert model.input_example.to_dict("records") == [{"features": [0.0, 0.0, 0.0]}]
    with pytest.raises(MlflowException, match=r"column 'features', row 0 .*: expected float32\[3\], got \[1, 2\]"):
        served(model, dataframe_records=[{"features": [1, 2]}])


@pytest.mark.parametrize("separator", ["|", None])
def test_cells_of_several_values_come_as_lists_or_as_text(separator: str | None, tmp_path: Path) -> None:
    lists: list[dict[str, Any]] = [
        {"tags": ["red", "blue"], "w": [1.0, 2.0]},
        {"tags": [], "w": []},
        {"tags": ["blue"], "w": [0.5]},
    ]
    texts = [{name: "|".join(map(str, values)) for name, values in row.items()} for row in lists]
    rows = lists if separator is None else texts
    table = pa.Table.from_pylist([{**row, "y": y} for y, row in enumerate(rows)])
    pq.write_table(table, tmp_path / "t.parquet")
    tags = ColumnOptions(vocabulary=["red", "blue"], max_values=2, separator=separator, weights="w", embedding=2)
    opened = ParquetInput(str(tmp_path / "t.parquet"), label="y", columns={"tags": tags}).read()
    data = opened.learn("error", "the train input")
    bundle = bundle_of(dnn_model, data.read(0, 0, 3)[0], {**PARAMS, "head": ClassifierSpec(3)}, data.schema())
    MlflowModelWriter().write(str(tmp_path / "model"), bundle)
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    agree(served(model, dataframe_records=rows), bundle.predictions)
    agree(model.predict(pd.DataFrame(rows)), bundle.predictions)
    model.predict(model.input_example)
