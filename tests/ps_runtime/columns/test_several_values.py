"""Cells of several values: how they are split, learned, computed, described and kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psflow.ps_runtime.columns.example import example_record
from psflow.ps_runtime.columns.frames import table_of
from psflow.ps_runtime.columns.learner import Learner
from psflow.ps_runtime.columns.options import ColumnOptions, LabelOptions
from psflow.ps_runtime.columns.preprocessing import Preprocessing
from psflow.ps_runtime.columns.raw import RawColumn
from psflow.ps_runtime.errors import CellError, InputError, UsageError

TEXT = {"tags": ["red | blue", "blue", None, "", "red||blue"], "amounts": ["1|2", "0.5", None, " ", "1|9|2"]}
LISTS = {
    "tags": [["red", "blue"], ["blue"], None, [], ["red", None, "blue"]],
    "amounts": [[1.0, 2.0], [0.5], None, [], [1.0, 9.0, 2.0]],
}
IDS = [[1, 0, -1], [0, -1, -1], [-1, -1, -1], [-1, -1, -1], [1, -1, 0]]
AMOUNTS = [[1, 2, 0], [0.5, 0, 0], [0, 0, 0], [0, 0, 0], [1, 9, 2]]


def options(separator: str | None = None, **given: Any) -> ColumnOptions:
    ids = {} if given.keys() & {"vocabulary", "hash_buckets", "num_ids"} else {"vocabulary": ["blue", "red"]}
    return ColumnOptions(**{"max_values": 3, "separator": separator, **ids, **given})


def learned(values: Mapping[str, Sequence[Any]], own: ColumnOptions) -> Preprocessing:
    table = pa.table({name: pa.array(column) for name, column in values.items()})
    kinds = {"string": "string", "list<item: string>": "string[]", "list<item: int64>": "int64[]"}
    kinds |= {"list<item: double>": "float64[]", "double": "float64", "int64": "int64"}
    columns = [RawColumn(name, kinds[str(column.type)]) for name, column in zip(values, table.columns, strict=True)]
    learner = Learner(columns, {"tags": own}, {}, seed=1)
    learner.update(table)
    return Preprocessing.from_facts(learner.finish().to_facts())


def applied(values: Mapping[str, Sequence[Any]], own: ColumnOptions) -> dict[str, Any]:
    made = learned(values, own)
    found = made.apply(pa.table({name: pa.array(column) for name, column in values.items()}))
    for spec in made.specs:
        assert (found[spec.name].dtype.name, found[spec.name].shape[1:]) == (spec.dtype, spec.shape)
    return {name: array.tolist() for name, array in found.items()}


@pytest.mark.parametrize(("values", "separator"), [(TEXT, "|"), (LISTS, None)])
def test_each_value_becomes_an_id_at_its_place_with_its_weight(values: Any, separator: str | None) -> None:
    assert applied(values, options(separator, weights="amounts")) == {"tags": IDS, "amounts": AMOUNTS}


def test_a_separator_may_have_several_characters() -> None:
    assert applied({"tags": ["red, blue", "red"]}, options(", ")) == {"tags": [[1, 0, -1], [1, -1, -1]]}


def test_strings_are_learned_of_all_values_by_their_count() -> None:
    made = learned({"tags": ["a|b", "b", "c|b|a"]}, options("|", vocabulary="auto"))
    [column] = made.columns
    assert made.lines() == ["tags: at most 3 values in a cell, 3 categories; the most frequent is 'b'"]
    assert (column.num_missing, column.read_as, column.separator) == (0, "string[]", "|")
    assert made.apply(pa.table({"tags": ["b|z", "a"]}))["tags"].tolist() == [[0, 3, -1], [1, -1, -1]]
    with pytest.raises(InputError, match="only missing values"):
        learned({"tags": ["", None, "|"]}, options("|", vocabulary="auto"))


def test_values_are_hashed_or_ids_as_they_are() -> None:
    single = Learner([RawColumn("tags", "string")], {"tags": ColumnOptions(hash_buckets=9)}, {}, seed=1)
    single.update(pa.table({"tags": ["a", "b"]}))
    alone = single.finish().apply(pa.table({"tags": ["a", "b"]}))["tags"].tolist()
    assert applied({"tags": ["b|a"]}, options("|", hash_buckets=9)) == {"tags": [[alone[1], alone[0], -1]]}
    assert applied({"tags": [[4, 0], [], [2]]}, options(num_ids=5))["tags"] == [[4, 0, -1], [-1] * 3, [2, -1, -1]]
    assert applied({"tags": ["4|0"]}, options("|", num_ids=5))["tags"] == [[4, 0, -1]]


WRONG_CELLS: list[tuple[dict[str, Any], ColumnOptions, str, int]] = [
    ({"tags": ["a", "a|a|a|a"]}, options("|"), "expected at most 3 values, got 4; raise max_values", 1),
    ({"tags": [["a"], [], ["a"] * 4]}, options(), "expected at most 3 values, got 4", 2),
    ({"tags": ["1|2", "1|5"]}, options("|", num_ids=5), "expected a whole number from 0 to 4, got 5", 1),
    ({"tags": ["1", "1|x"]}, options("|", num_ids=5), "expected a whole number, got 'x'", 1),
    (
        {"tags": ["a|b", "a"], "w": ["1|2", "1|2"]},
        options("|", weights="w"),
        "expected 1 weights, one for each value of 'tags', got 2",
        1,
    ),
    ({"tags": ["a|b"], "w": ["1|x"]}, options("|", weights="w"), "expected a number, got 'x'", 0),
    (
        {"tags": ["a", "a|b"], "w": ["1", "1|"]},
        options("|", weights="w"),
        "a finite number for each value, got None",
        1,
    ),
    ({"tags": [["a"]], "w": [[float("inf")]]}, options(weights="w"), "a finite number for each value, got inf", 0),
]


@pytest.mark.parametrize(("values", "own", "words", "row"), WRONG_CELLS)
def test_a_cell_that_is_wrong_is_named(values: dict[str, Any], own: ColumnOptions, words: str, row: int) -> None:
    with pytest.raises(CellError, match=words) as caught:
        applied(values, own)
    assert caught.value.row == row


WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"separator": "|"}, "separator applies to cells of several values; set max_values too"),
    ({"weights": "w"}, "weights applies to cells of several values"),
    ({"combiner": "sum"}, "combiner applies to cells of several values"),
    ({"max_values": 3}, "set vocabulary, hash_buckets or num_ids beside max_values"),
    ({"max_values": 0, "num_ids": 3}, "max_values is 0, expected a whole number from 1 to 10,000"),
    ({"max_values": 10_001, "num_ids": 3}, "max_values is 10001"),
    ({"max_values": 3, "num_ids": 3, "type": "string"}, "type and max_values contradict"),
    ({"max_values": 3, "num_ids": 3, "impute": 1}, "impute and max_values contradict"),
    ({"max_values": 3, "num_ids": 3, "indicator": True}, "indicator and max_values contradict"),
    ({"max_values": 3, "buckets": [1.0]}, "buckets and max_values contradict"),
    ({"max_values": 3, "num_ids": 3, "separator": ""}, "separator is ''"),
    ({"max_values": 3, "num_ids": 3, "weights": ""}, "weights is ''"),
    ({"max_values": 3, "num_ids": 3, "combiner": "sum"}, "combiner combines vectors; set embedding too"),
    ({"max_values": 3, "num_ids": 3, "combiner": "men", "embedding": 2}, "did you mean 'mean'"),
]


@pytest.mark.parametrize(("given", "words"), WRONG_OPTIONS)
def test_options_that_contradict_one_another_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ColumnOptions(**given)


WRONG_COLUMNS: list[tuple[dict[str, str], dict[str, ColumnOptions], str]] = [
    ({"tags": "string"}, {"tags": options()}, "max_values is for lists, .*set separator if its cells are text"),
    ({"tags": "string[]"}, {"tags": options("|")}, r"separator is for text, but the column is string\[\]"),
    (
        {"tags": "string[]"},
        {"tags": options(num_ids=3)},
        r"max_values is for lists, int64\[\], but the column is string",
    ),
    ({"tags": "string[]"}, {}, "a cell is a list; set max_values"),
    ({"tags": "string[]"}, {"tags": options(weights="w")}, "has weights 'w', which is not a feature column"),
    ({"tags": "string[]", "w": "string"}, {"tags": options(weights="w")}, r"lists, int64\[\] or float32\[\]"),
    (
        {"tags": "string[]", "w": "float64[]"},
        {"tags": options(weights="w"), "w": ColumnOptions(normalize="standard")},
        "of its own: it has options; leave them out",
    ),
    (
        {"tags": "string[]", "more": "string[]", "w": "float64[]"},
        {"tags": options(weights="w"), "more": options(weights="w")},
        "of its own: two columns name it",
    ),
]


@pytest.mark.parametrize(("types", "own", "words"), WRONG_COLUMNS)
def test_columns_that_hold_something_else_are_refused(
    types: dict[str, str], own: dict[str, ColumnOptions], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        Learner([RawColumn(name, kind) for name, kind in types.items()], own, {}, seed=1)


def test_a_list_is_no_label_and_no_key() -> None:
    columns = [RawColumn("x", "float64"), RawColumn("l", "int64[]")]
    for given in ({"label": LabelOptions("l")}, {"keys": ["l"]}, {"weight": "l"}):
        with pytest.raises(UsageError, match="'l' is a list of values, expected one per record"):
            Learner(columns, {}, {}, seed=1, **given)  # type: ignore[arg-type]


def test_another_separator_or_number_of_values_is_another_preprocessing() -> None:
    one, other = (
        learned({"tags": ["a|b"], "w": ["1|1"]}, options("|", weights="w", embedding=2, combiner=combiner))
        for combiner in ("sum", "mean")
    )
    assert one.differences(one) == []
    assert one.differences(other) == ["column 'tags' has combiner 'mean', expected 'sum'"]
    narrow = learned(
        {"tags": ["a|b"], "w": ["1|1"]}, options("|", weights="w", max_values=2, embedding=2, combiner="sum")
    )
    assert "column 'tags' has max values 2, expected 3" in one.differences(narrow)
    spaced = learned({"tags": ["a b"], "w": ["1 1"]}, options(" ", weights="w", embedding=2, combiner="sum"))
    assert "column 'tags' has the separator ' ', expected '|'" in one.differences(spaced)


def test_missing_values_are_no_fault_and_examples_are_made_up() -> None:
    of_text, of_lists = learned(TEXT, options("|", weights="amounts")), learned(LISTS, options(weights="amounts"))
    missing = pa.table({"tags": pa.array([None], pa.string()), "amounts": pa.array([None], pa.string())})
    assert of_text.missing_by_column(missing) == {}
    assert of_text.filled_columns == {"tags", "amounts"}
    assert example_record(of_text) == {"tags": "blue", "amounts": "1"}
    assert example_record(of_lists) == {"tags": ["blue"], "amounts": [1.0]}
    for made in (of_text, of_lists):
        table = table_of({name: [value] for name, value in example_record(made).items()}, made.raw_columns)
        assert made.apply(table)["tags"].tolist() == [[0, -1, -1]]


def test_clients_send_lists_of_the_kind_of_training() -> None:
    made = learned(LISTS, options(weights="amounts"))
    rows = {"tags": [["red"], [], None], "amounts": [[2], [], None]}
    found = made.apply(table_of(rows, made.raw_columns))
    assert found["tags"].tolist() == [[1, -1, -1], [-1] * 3, [-1] * 3]
    assert found["amounts"].tolist()[0] == [2, 0, 0]
    assert (
        made.apply(table_of({"tags": [[], []], "amounts": [[], []]}, made.raw_columns))["tags"].tolist()
        == [[-1] * 3] * 2
    )
    nulls = table_of({"tags": [[None], []], "amounts": [[1], []]}, made.raw_columns)
    assert made.apply(nulls)["tags"].tolist() == [[-1] * 3] * 2
    for wrong in ("red", [1]):
        with pytest.raises(InputError, match=r"expected string\[\], got"):
            table_of({"tags": [wrong]}, made.raw_columns)


def test_a_feature_of_several_ids_is_described_to_models() -> None:
    specs = learned(LISTS, options(weights="amounts", embedding=4, combiner="sqrtn", admit_after=2)).specs
    tags = specs[0]
    assert (tags.shape, tags.num_ids, tags.embedding, tags.combiner, tags.weights) == ((3,), 3, 4, "sqrtn", "amounts")
    assert str(tags.lifetime) == "admit_after 2"
    assert np.dtype(specs[1].dtype) == np.float32
