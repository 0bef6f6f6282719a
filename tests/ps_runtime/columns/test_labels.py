from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.comparing import label_differences
from psflow.ps_runtime.columns.describing import label_line
from psflow.ps_runtime.columns.facts import label_facts, label_from
from psflow.ps_runtime.columns.features import FeatureSpec, Standard
from psflow.ps_runtime.columns.labels import Label, LabelLearner, weights_of
from psflow.ps_runtime.columns.options import LabelOptions
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.columns.reading import Column, convert, raw_type_of
from psflow.ps_runtime.errors import CellError, InputError, UsageError


def learn(
    *chunks: list[Any], classes: Any = None, arrow_type: pa.DataType | None = None, normalize: Any = None
) -> Label:
    arrays = [pa.array(chunk, arrow_type) for chunk in chunks]
    learner = LabelLearner(RawColumn("y", raw_type_of(arrays[0].type)), LabelOptions("y", classes, normalize))
    for array in arrays:
        learner.update(convert(array, learner.column.read_as, "y"))
    return learner.finish()


@pytest.mark.parametrize(
    ("values", "classes", "labels", "learned"),
    [
        ([">50K", "<=50K", ">50K"], None, [1, 0, 1], ("<=50K", ">50K")),
        (["b", "a", "B"], "auto", [2, 1, 0], ("B", "a", "b")),
        (["b", "a"], ["b", "a", "c"], [0, 1], ("b", "a", "c")),
        ([10, 9, 10], "auto", [1, 0, 1], ("9", "10")),
        ([2.0, 1.0], [1, 2], [1, 0], ("1", "2")),
        ([True, False], None, [1, 0], None),
        ([True, False], [True, False], [0, 1], ("true", "false")),
        ([3, 1], None, [3, 1], None),
        ([3.0, -1.0], None, [3, -1], None),
    ],
)
def test_labels_are_classes_or_whole_numbers(
    values: list[Any], classes: Any, labels: list[int], learned: tuple[str, ...] | None
) -> None:
    label = learn(values, classes=classes)
    made = label.apply(pa.table({"y": values}))
    assert (made.tolist(), made.dtype) == (labels, np.int64)
    assert label.classes == learned
    assert label.spec == FeatureSpec("y", "int64", (), None if learned is None else len(learned))


def test_numbers_are_fractions_if_any_of_them_is() -> None:
    assert learn([1.0, 2.0], [3.0, None]).dtype == "int64"
    label = learn([1.0, 2.0], [2.5, None])
    assert (label.dtype, label.column.num_missing) == ("float32", 1)
    np.testing.assert_array_equal(label.apply(pa.table({"y": [1, 2]})), np.array([1, 2], np.float32))
    assert learn([1.0, 2.0**60]).dtype == "float32"


@pytest.mark.parametrize(
    ("label", "values", "fault"),
    [
        (learn(["a", "b"]), ["a", "A"], "row 1 .*: 'A' is not a class, expected 'a', 'b'"),
        (learn(["a", "b"]), ["a", None], "row 1 .*: expected a label, got a missing value"),
        (learn([1.0, 2.0]), [1.0, 0.5], "row 1 .*: expected a whole number, as all labels .*, got 0.5"),
        (learn([1, 2]), [1.0, float("inf")], "row 1 .*: expected a whole number, as all labels .*, got inf"),
        (learn([1.0, 0.5]), [0.5, float("nan")], "row 1 .*: expected a label, got a missing value"),
    ],
)
def test_what_is_no_label_is_named(label: Label, values: list[Any], fault: str) -> None:
    with pytest.raises(CellError, match="column 'y', " + fault):
        label.apply(pa.table({"y": values}))


def test_a_label_of_another_type_is_refused() -> None:
    with pytest.raises(InputError, match="column 'y' is string, expected int64"):
        learn([1]).apply(pa.table({"y": ["1"]}))


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(CellError, match=re.escape("column 'y', row 1 (counted from 0): 'c' is not a class")):
        learn(["a", "c"], classes=["a", "b"])
    with pytest.raises(CellError, match=r"row 0 .*: expected a finite number as label"):
        learn([float("inf")])
    with pytest.raises(InputError, match="the label 'y' has only missing values"):
        learn([None, None], arrow_type=pa.string())
    with pytest.raises(UsageError, match="the label 'y' is date, expected numbers, strings or booleans"):
        learn([datetime.date(2020, 1, 1)])


def test_missing_labels_are_counted_and_no_class() -> None:
    label = learn(["b", None], [None, "a"])
    assert (label.classes, label.column.num_missing) == (("a", "b"), 2)
    assert learn(["b", None], classes=["b", "a"]).column.num_missing == 1


def test_weights_are_finite_and_not_negative() -> None:
    column = Column(RawColumn("w", "int64"), "float64")
    weights = weights_of(pa.table({"w": [0, 2]}), column)
    assert (weights.tolist(), weights.dtype) == ([0, 2], np.float32)
    for bad in (-0.5, None, float("inf"), 1e300):
        with pytest.raises(CellError, match=r"column 'w', row 1 .*: expected a weight, a finite number >= 0"):
            weights_of(pa.table({"w": [0.5, bad]}), column)


def test_numbers_stay_as_they_are_beside_how_a_regressor_normalizes_them() -> None:
    label = learn([1.0, None], [3.0, 8.0], normalize="standard")
    assert label.normalizer == Standard(4.0, pytest.approx(np.std([1, 3, 8])))
    np.testing.assert_array_equal(label.apply(pa.table({"y": [1, 8]})), [1, 8])
    assert label_from(label_facts(label)) == label
    assert label_line(label) == "y: labels, whole numbers, mean 4, standard deviation 2.94392, 1 missing value"
    assert list(label_differences(learn([1.0, 3.0, 8.0]), label)) == [
        "the label 'y' has normalizer standard, expected none"
    ]


def test_equal_labels_have_no_deviation() -> None:
    assert learn([0.1] * 3, normalize="standard").normalizer == Standard(0.1, 0.0)


def test_strings_and_classes_are_not_normalized() -> None:
    with pytest.raises(UsageError, match="the label 'y' is string, expected numbers to normalize"):
        learn(["a", "b"], normalize="standard")
    with pytest.raises(UsageError, match="normalize and classes contradict each other"):
        LabelOptions("y", [1, 2], "standard")
    with pytest.raises(UsageError, match="normalize is 'standart', expected one of standard; did you mean"):
        LabelOptions("y", normalize="standart")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"numbers up to 1e\+308: too large to normalize"):
        learn([1e308, -1e308], normalize="standard")
