from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.errors import InputError, ModelFnError, UsageError
from psflow.ps_runtime.model.canned.multi_label_head import MultiLabelHead
from psflow.tasks.prediction.columns import OutputColumns, Prediction, chosen_predictions
from psflow.tasks.prediction.options import PredictionOptions
from tests.tasks.prediction.scoring import BOTH, SUM, columns

KEYS = pa.table({"id": ["x", "y"]})
VALUES = {"sum": np.array([1, 2], np.float32), "both": np.array([[0.1, 1 / 3], [1e-30, 3.4e38]], np.float32)}


def table_of(found: OutputColumns, values: Any = VALUES, keys: Any = KEYS) -> pa.Table:
    return found.table(keys, values, 2, found.schema())


def test_keys_come_first_then_the_chosen_predictions_in_their_order() -> None:
    assert [prediction.name for prediction in chosen_predictions([SUM, BOTH], None)] == ["sum", "both"]
    chosen = chosen_predictions([SUM, BOTH], ["both", "sum"])
    made = table_of(OutputColumns((RawColumn("id", "string"),), chosen, "parquet"))
    assert made.column_names == ["id", "both", "sum"]
    assert made.schema.field("both").type == pa.list_(pa.float32(), 2)
    np.testing.assert_array_equal(np.array(made["both"].to_pylist(), np.float32), VALUES["both"])


def test_csv_has_a_column_for_each_number_and_keeps_every_bit() -> None:
    buffer = io.BytesIO()
    csv.write_csv(table_of(columns("csv")), buffer)
    lines = buffer.getvalue().decode().splitlines()
    assert lines[0].replace('"', "") == "sum,both_0,both_1"
    read = np.array([line.split(",")[1:] for line in lines[1:]]).astype(np.float32)
    np.testing.assert_array_equal(read, VALUES["both"])


def test_deep_arrays_are_flat_and_texts_are_text() -> None:
    deep, words = Prediction("a", "int64", (2, 2)), Prediction("s", "str", ())
    values = {"a": np.arange(8).reshape(2, 2, 2), "s": np.array(["x,y", "z"])}
    assert table_of(columns("csv", deep, words), values).to_pylist() == [
        {"a_0": 0, "a_1": 1, "a_2": 2, "a_3": 3, "s": "x,y"},
        {"a_0": 4, "a_1": 5, "a_2": 6, "a_3": 7, "s": "z"},
    ]
    assert table_of(columns("parquet", deep, words), values)["a"].to_pylist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("output_format", ["parquet", "csv"])
def test_an_array_of_one_is_a_plain_column(output_format: Any) -> None:
    ids, words = Prediction("class_ids", "int64", (1,)), Prediction("classes", "str", (1,))
    values = {"class_ids": np.array([[3], [5]]), "classes": np.array([["cat"], ["dog"]])}
    made = table_of(columns(output_format, ids, words), values)
    assert made.to_pylist() == [{"class_ids": 3, "classes": "cat"}, {"class_ids": 5, "classes": "dog"}]


@pytest.mark.parametrize("words", [["red", "round, sweet"], ["0", "1"]])
def test_the_classes_of_several_labels_stand_beside_their_probabilities(words: list[str]) -> None:
    head = MultiLabelHead(n_classes=2, label_vocabulary=None if words == ["0", "1"] else words)
    predicted = head.predictions(np.zeros((2, 2), np.float32))
    chosen = Prediction("probabilities", "float32", (2,)), Prediction("classes", "str", (2,))
    row = {"probabilities_0": 0.5, "probabilities_1": 0.5, "classes_0": words[0], "classes_1": words[1]}
    assert table_of(columns("csv", *chosen), predicted).to_pylist() == [row] * 2
    lists = {"probabilities": [0.5, 0.5], "classes": words}
    assert table_of(columns("parquet", *chosen), predicted).to_pylist() == [lists] * 2


def test_what_is_the_same_in_each_row_is_written_only_on_request() -> None:
    known = [SUM, Prediction("all_class_ids", "int32", (2,)), Prediction("all_classes", "str", (2,))]
    assert chosen_predictions(known, None) == (SUM,)
    assert chosen_predictions(known, ["all_classes"]) == (known[2],)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["sums"], r"predict_keys names 'sums': the model predicts 'sum', 'both'; did you mean 'sum'\?"),
        (["sum", "sum"], "predict_keys names 'sum' twice"),
    ],
)
def test_predictions_that_the_model_does_not_have(names: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        chosen_predictions([SUM, BOTH], names)


def test_a_key_column_with_the_name_of_a_prediction_is_refused() -> None:
    with pytest.raises(InputError, match="the prediction 'sum' has the name of a key column; rename that one"):
        OutputColumns((RawColumn("sum", "string"),), (SUM,), "parquet")
    with pytest.raises(InputError, match="the prediction 'both_0' has the name of another prediction"):
        OutputColumns((), (BOTH, Prediction("both_0", "float32", ())), "csv")
    assert OutputColumns((), (BOTH, Prediction("both_0", "float32", ())), "parquet").schema().names == [
        "both",
        "both_0",
    ]


def test_a_prediction_without_a_type_of_columns_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(
        ModelFnError, match=r"'z': complex64 has an unsupported type: .*; leave it out with predict_keys"
    ):
        columns("parquet", Prediction("z", "complex64", ())).schema()


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ({}, "nothing"),
        ({"sum": np.zeros(3, np.float32)}, r"float32\[3\]"),
        ({"sum": np.zeros(2)}, r"float64\[2\]"),
        ({"sum": np.zeros((2, 1), np.float32)}, r"float32\[2, 1\]"),
    ],
)
def test_predictions_that_are_not_those_of_the_signature(values: Any, got: str) -> None:
    words = rf"for 2 rows model_fn predicted {got} as 'sum': expected float32\[2\], as exported"
    with pytest.raises(ModelFnError, match=words):
        table_of(columns("parquet", SUM), values)


def test_texts_that_spreadsheets_take_for_formulas_are_escaped_and_numbers_stay() -> None:
    chosen = (Prediction("score", "float32", ()), Prediction("@word", "str", ()))
    keys = pa.table({"id": ["=1+1", "-3.2", "+49-30", "a=b", None, "\t=1"], "number": [-1, -2, -3, -4, -5, -6]})
    raw = (RawColumn("id", "string"), RawColumn("number", "int64"))
    values = {"score": np.float32([-3.25, -1, 0, 1, -2e10, 3]), "@word": np.array(["=x", "-", "", "+5e3", "@a", "b"])}

    def written(*, escape_formulas: bool) -> list[str]:
        found, buffer = OutputColumns(raw, chosen, "csv", escape_formulas), io.BytesIO()
        csv.write_csv(found.table(keys, values, 6, found.schema()), buffer)
        return buffer.getvalue().decode().splitlines()

    assert written(escape_formulas=True) == [
        '"id","number","score","\'@word"',
        '"\'=1+1",-1,-3.25,"\'=x"',
        '"-3.2",-2,-1,"\'-"',
        '"\'+49-30",-3,0,""',
        '"a=b",-4,1,"+5e3"',
        ',-5,-2e+10,"\'@a"',
        '"\'\t=1",-6,3,"b"',
    ]
    assert "'" not in "".join(written(escape_formulas=False))


def test_formulas_are_escaped_in_csv_alone() -> None:
    with pytest.raises(UsageError, match=r"but output_format is parquet: .* set output_format: csv"):
        PredictionOptions(escape_formulas=True)
