"""Cells that are not of the type of their column, in psflow init and psflow plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from psflow.flows.init.answer import init
from psflow.ps_runtime.errors import InputError
from tests.flows.init.drafts import csv, draft, people, planned

ROW_602 = "row 602 (the header is row 1; empty lines do not count)"


def with_rows(*rows: str, num_rows: int = 600) -> str:
    return people(num_rows, z="row % 7") + "".join(f"{row}\n" for row in rows)


def test_a_row_of_sums_is_left_out_and_named() -> None:
    facts = draft(csv(with_rows("Total,,29500")), "y")
    assert facts["label"]["comment"].startswith("2 classes")
    assert {name: column["use"] for name, column in facts["columns"].items()} == {"x": "feature", "z": "feature"}
    text = Path("t.yaml").read_text()
    assert (
        "# x: 600 of 601 are numbers; row 602 (the header is row 1; empty lines do not count) is 'Total': left out"
        in text
    )
    assert text.count("invalid: drop") == 2
    _, plan = planned("t.yaml")
    assert [dataset.invalid.num_rows for dataset in plan.datasets.values()] in ([1, 0], [0, 1])


def test_a_header_that_is_repeated_is_left_out_and_no_class() -> None:
    answer = init(csv(with_rows() * 3), "y", output=None, model=None, format_name=None, overwrites=False)
    assert answer.facts["label"]["comment"].startswith("2 classes")
    assert f"leaves out records: column 'x': 1,800 of 1,802 are numbers; {ROW_602} is 'x', the name of the column" in (
        answer.lines or []
    )


def test_a_header_that_is_repeated_among_words_alone_is_no_class_either() -> None:
    words = people(40, x="'a' if row % 2 else 'b'")
    facts = draft(csv(words * 20), "y")
    assert facts["label"]["comment"].startswith("2 classes")
    assert facts["columns"]["x"]["comment"] == "2 distinct values"
    assert [column["num_cells"] for column in facts["invalid"]] == [19, 19]
    planned("t.yaml")


def test_what_is_left_out_is_reported_at_once() -> None:
    path = csv(people(60, **{f"c{number}": "'same'" for number in range(20)}))
    answer = init(path, "y", output=None, model=None, format_name=None, overwrites=False)
    told = [line for line in answer.lines or [] if line.startswith("leaves out")]
    assert told[0] == "leaves out column 'c0': always same: left out"
    assert (len(told), told[-1]) == (11, "leaves out 10 more, see its comments")


def test_without_the_key_the_configuration_is_refused_with_the_row() -> None:
    draft(csv(with_rows("abc,yes,3")), "y")
    conf = Path("t.yaml")
    conf.write_text(conf.read_text().replace("invalid: drop", "invalid: error"))
    with pytest.raises(InputError, match=r"t.csv: column 'x': \d+ of \d+ are numbers; row 602 .* is 'abc'"):
        planned("t.yaml")


def test_many_words_among_numbers_are_codes() -> None:
    facts = draft(csv(people(600, code="f'V{row % 5}' if row % 20 == 0 else row % 9")), "y")
    assert facts["columns"]["code"]["options"] == {"type": "string"}
    assert "10 distinct values: 570 of 600 are whole numbers; row 2 " in facts["columns"]["code"]["comment"]
    assert "invalid" not in Path("t.yaml").read_text()
    planned("t.yaml")


def test_a_word_in_a_column_that_is_not_read_leaves_nothing_out() -> None:
    facts = draft(csv(people(60, id="'none' if row == 3 else row")), "y")
    assert facts["columns"]["id"]["use"] == "key"
    assert "invalid" not in Path("t.yaml").read_text()


@pytest.mark.parametrize("names", [("1990", "1991", "1992"), ("0", "1", "2"), ("0.5", "1e3", "-2")])
def test_names_that_look_like_numbers_are_names_beside_the_label(names: tuple[str, ...]) -> None:
    row_of = dict.fromkeys(names, "row * 7 % 10 + 0.5")
    facts = draft(csv(people(60, **row_of)), "y")
    assert facts["records_read"] == 60
    assert [name for name, column in facts["columns"].items() if column["use"] == "feature"] == ["x", *names]
    _, plan = planned("t.yaml")
    assert [feature.name for feature in plan.model.schema.features] == ["x", *names]


def test_numbers_in_another_spelling_are_not_left_out_with_their_records() -> None:
    facts = draft(csv(people(600, amount="'\"1,234\"' if row == 30 else row")), "y")
    assert facts["invalid"] == []
    assert "1 of 600 look like '1,234', numbers with commas" in facts["columns"]["amount"]["comment"]
