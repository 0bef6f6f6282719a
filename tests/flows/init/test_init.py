"""``psflow init`` writes a configuration that can be trained, or reports why it cannot."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from psflow.flows import cli
from psflow.flows.init import sample
from psflow.flows.init.answer import init
from psflow.ps_runtime.errors import UsageError
from tests.flows.init.drafts import csv, draft, people, planned

EXAMPLES = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "tabular_files.py"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_classifier_of_the_example_plans_at_once_in_fifteen_lines(suffix: str) -> None:
    EXAMPLES["write"](EXAMPLES["census"](1000, seed=3), "census", Path())
    facts = draft(f"census.{suffix}", "income")
    text = Path("census.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.strip().startswith("#")]
    assert len(lines) <= 15, text
    assert max(map(len, lines)) <= 120
    uses = {name: column["use"] for name, column in facts["columns"].items()}
    assert {name for name, use in uses.items() if use == "left out"} == {"survey"}
    assert {name for name, use in uses.items() if use == "key"} == {"id"}
    options = {name: column["options"] for name, column in facts["columns"].items() if column["options"]}
    filled = {"impute": "median", "indicator": True, "normalize": "standard"}
    standard = {"normalize": "standard"}
    assert options == {
        **dict.fromkeys(("age", "hours", "asked"), standard),
        **dict.fromkeys(("schooling", "savings"), filled),
        "work": {"impute": "(missing)"},
        **({"postcode": {"type": "string"}} if suffix == "csv" else {}),
    }
    parameters, plan = planned("census.yaml")
    assert parameters.model.name == facts["model"]["name"] == "DNNClassifier"
    assert sum(dataset.num_records for dataset in plan.datasets.values()) == 1000
    assert plan.model.schema is not None
    assert plan.model.schema.classes == ("high", "low")
    assert "# work: 6 distinct values, " in text
    assert "# survey: always household: left out" in text


def test_a_regressor_of_the_example_plans_at_once() -> None:
    EXAMPLES["write"](EXAMPLES["housing"](400, seed=3), "housing", Path())
    facts = draft("housing.parquet", "price")
    assert facts["label"]["normalize"] == "standard"
    assert facts["model"] == {"name": "LinearRegressor", "reason": "400 records are too few for a deep network"}
    assert facts["columns"]["house"]["use"] == "key"
    _, plan = planned("housing.yaml")
    assert plan.model.schema is not None
    assert plan.model.schema.label_normalizer is not None


@pytest.mark.parametrize(
    ("values", "key", "model"),
    [
        ("'a' if row % 2 else 'b'", "y", "LinearClassifier"),
        ("row % 2", {"column": "y", "classes": "auto"}, "LinearClassifier"),
        ("row % 3 + 1", {"column": "y", "classes": "auto"}, "LinearClassifier"),
        ("row % 2 == 0", {"column": "y", "classes": "auto"}, "LinearClassifier"),
        ("float(row % 2)", {"column": "y", "classes": "auto"}, "LinearClassifier"),
        ("row % 2 + 0.5", {"column": "y", "normalize": "standard"}, "LinearRegressor"),
        ("row * 3", {"column": "y", "normalize": "standard"}, "LinearRegressor"),
        ("row % 2 if row else ''", {"column": "y", "classes": "auto"}, "LinearClassifier"),
    ],
)
def test_labels_are_classes_or_a_number(values: str, key: Any, model: str) -> None:
    facts = draft(csv(people(40, y=values)), "y")
    parameters, plan = planned("t.yaml")
    assert facts["model"]["name"] == model
    label = parameters.input.train.label  # type: ignore[union-attr]
    assert (label if isinstance(label, str) else label.model_dump(exclude_defaults=True)) == key
    assert plan.datasets["train"].num_records < 40


@pytest.mark.parametrize(
    ("column", "use", "options"),
    [
        ({"id": "row + 100"}, "key", {}),
        ({"customer_id": "row * 17 % 31"}, "key", {}),
        ({"orderKey": "row * 17 % 31"}, "key", {}),
        ({"number": "row + 5"}, "key", {}),
        ({"name": "'n%d' % row"}, "key", {}),
        ({"weight": "row * 17 % 31"}, "feature", {"normalize": "standard"}),
        ({"paid": "row * 17 % 31"}, "feature", {"normalize": "standard"}),
        ({"shop_id": "row % 4 + 700"}, "feature", {"vocabulary": "auto"}),
        ({"zip": "'0050%d' % (row % 4)"}, "feature", {"type": "string"}),
        ({"when": "'2026-01-%02d' % (row % 28 + 1)"}, "feature", {"normalize": "standard"}),
        ({"flag": "row % 5 == 0"}, "feature", {}),
        ({"flag": "row % 5 == 0 if row % 4 else ''"}, "feature", {"impute": "(missing)"}),
        ({"word": "'abc'[row % 3] if row % 4 else ''"}, "feature", {"impute": "(missing)"}),
        ({"word": "'abc'[row % 3] if row % 4 else '?'"}, "feature", {"impute": "(missing)"}),
        (
            {"mark": "row % 3 + 0.5 if row % 4 else '-'"},
            "feature",
            {"impute": "median", "indicator": True, "normalize": "standard"},
        ),
        ({"mark": "1 if row % 4 else ''"}, "feature", {"impute": "median", "indicator": True, "normalize": "standard"}),
        ({"same": "7"}, "left out", {}),
        ({"empty": "''"}, "left out", {}),
        ({"note": "'word %d' % (row // 1.5)"}, "left out", {}),
        ({"text": "'long ' * 20 + 'abc'[row % 3]"}, "left out", {}),
        ({"text": "'a' * 1001 if row == 7 else 'abc'[row % 3]"}, "left out", {}),
    ],
    ids=str,
)
def test_a_column_is_guessed_by_name_and_values(column: dict[str, str], use: str, options: dict[str, Any]) -> None:
    facts = draft(csv(people(**column)), "y")
    [name] = column
    found = facts["columns"][name]
    assert (found["use"], found["options"]) == (use, options)
    assert f"# {name}: {found['comment']}" in Path("t.yaml").read_text()
    parameters, plan = planned("t.yaml")
    assert list(parameters.input.train.key_columns) == [name] * (use == "key")  # type: ignore[union-attr]
    schema = plan.model.schema
    assert schema is not None
    assert (name in schema.table_columns) == (use == "feature")


@pytest.mark.parametrize(
    ("columns", "blank"),
    [
        ({"y": "['+', '-', '0x', '-'][row % 4]"}, []),
        ({"y": "'+-'[row % 2]", "mark": "row % 3 + 0.5 if row % 4 else '-'"}, []),
        ({"sign": "'+-.'[row % 3]"}, []),
        ({"sign": "'+-.'[row % 3]", "mark": "row % 3 + 0.5 if row % 4 else '-'"}, []),
        ({"stop": "'!?.'[row % 3]"}, []),
        ({"level": "'ab-'[row % 3]"}, []),
        ({"mostly": "row % 3 if row % 4 == 0 else '-'"}, []),
        ({"mostly": "row % 3 if row % 4 == 0 else '?'"}, ["?"]),
        ({"level": "'ab?'[row % 3]", "mark": "row % 3 + 0.5 if row % 4 else '.'"}, ["?", "."]),
        ({"when": "'2026-01-%02d' % (row % 28 + 1) if row % 4 else '--'"}, ["--"]),
    ],
    ids=str,
)
def test_a_word_is_missing_only_if_it_is_no_value_of_any_column(columns: dict[str, str], blank: list[str]) -> None:
    facts = draft(csv(people(40, **columns)), "y")
    parameters, plan = planned("t.yaml")
    found = parameters.input.train.na_values  # type: ignore[union-attr]
    assert list(found or [])[: len(blank)] == blank
    assert (found is None) == (not blank)
    assert sum(dataset.num_records for dataset in plan.datasets.values()) == 40
    words = {name: len({eval(text, {"row": row}) for row in range(40)}) for name, text in columns.items()}
    assert plan.model.schema is not None
    if "y" in columns:
        assert len(plan.model.schema.classes) == words["y"]
    for name in {"sign", "stop"} & set(columns):
        assert facts["columns"][name]["comment"] == "3 distinct values"


def test_very_many_words_are_hashed_and_a_deep_network_embeds_them() -> None:
    path = csv(people(2050, word="'w%d' % (row % 1010)"))
    assert draft(path, "y")["columns"]["word"]["options"] == {"hash_buckets": 2048, "embedding": 8}
    linear = draft(path, "y", model="LinearClassifier", overwrites=True)
    assert linear["columns"]["word"]["options"] == {"hash_buckets": 2048}
    planned("t.yaml")


def test_only_the_first_records_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MAX_RECORDS", 50)
    facts = draft(csv(people(400, late="'' if row > 60 else row % 4")), "y")
    assert facts["records_read"] == 50
    assert facts["columns"]["late"]["options"] == {"normalize": "standard"}
    assert "the first 50 of about 400 records" in Path("t.yaml").read_text()


def test_names_and_values_that_yaml_takes_for_something_else_are_quoted() -> None:
    header = 'yes,"a: b","c # d","e\n f","{g}",y'
    cells = "{0},{1},{2},{3},null: #{0},{4}"
    rows = [cells.format(row % 3, row % 4, row % 5, row % 6, "no" if row % 3 else "true") for row in range(30)]
    draft(csv("\n".join([header, *rows]) + "\n"), "y")
    parameters, _ = planned("t.yaml")
    assert set(parameters.input.train.columns) == {"yes", "a: b", "c # d", "e\n f"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "label", "words"),
    [
        (people(price="1"), "prices", r"no column 'prices'; did you mean 'price'\?; expected the label among x, y, "),
        (people(), "income", r"t\.csv: there is no column 'income'; expected the label among x, y$"),
        (people(y="'a'"), "y", "the label 'y' is always 'a': expected at least two values"),
        (people(y="''"), "y", "the label 'y' has only missing values"),
        (people(y="'w%d' % row"), "y", "the label 'y' has 30 distinct strings in 30 records: expected classes"),
        (people(y="'2026-01-%02d' % (row % 3 + 1)"), "y", "label 'y' is date, expected numbers, strings or booleans"),
        (people(x="row"), "y", r"no feature column remains \(x: all distinct: identifies a record\)"),
        ("y\n" + "a\nb\n" * 20, "y", r"no feature column remains \(no other column\)"),
        ("1,2\n3,4\n", "y", "in the first row, with the label 'y', got '1'; add a header row, or pass column_names="),
        ("1990,1991,yes\n3,4,5\n", "yess", "the label 'yess', got '1990'; did you mean 'yes'[?]; add a header row"),
        ("x,y\n", "y", "expected records, found none"),
        (
            people(4),
            "y",
            "4 records with a label are too few to train on some and evaluate on others; provide at least about 100",
        ),
        ("", "y", r"t\.csv is empty"),
    ],
)
def test_what_cannot_be_learned_is_refused(text: str, label: str, words: str) -> None:
    csv(text)
    with pytest.raises(UsageError, match=words):
        draft("t.csv", label)
    assert not Path("t.yaml").exists()


def test_the_model_fits_the_label() -> None:
    with pytest.raises(UsageError, match=r"expected DNNClassifier or LinearClassifier for this label$"):
        draft(csv(people()), "y", model="DNNRegressor")


def test_a_file_that_is_there_is_replaced_only_if_asked() -> None:
    csv(people())
    Path("t.yaml").write_text("mine")
    with pytest.raises(UsageError, match=r"t\.yaml exists; name another file with --output, or replace it"):
        draft("t.csv", "y")
    assert Path("t.yaml").read_text() == "mine"
    assert draft("t.csv", "y", output="conf/other.yaml")["output"] == "conf/other.yaml"
    draft("t.csv", "y", overwrites=True)
    assert Path("t.yaml").read_text() == Path("conf/other.yaml").read_text()
    assert sorted(path.name for path in Path().iterdir()) == ["conf", "t.csv", "t.yaml"]


def test_the_command_answers_with_what_to_do_next(capfd: pytest.CaptureFixture[str]) -> None:
    csv(people())
    assert cli.run(["init", "t.csv", "--label", "y"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said == [
        "wrote t.yaml: a LinearClassifier, which predicts 'y' from 1 of 1 columns",
        "check its comments, then run",
        "  psflow plan t.yaml",
        "  psflow train t.yaml",
        "  psflow predict --model models:/psflow-t@best --input NEW --output predictions",
    ]
    with Path("answer").open("w") as answer:
        assert cli.run(["init", "t.csv", "--label", "y", "--force", "--json"], answer) == 0
    facts = json.loads(Path("answer").read_text())
    assert facts["next"] == [line.strip() for line in said[2:]]
    assert cli.run(["init", "t.csv"]) == 2
    assert cli.run(["init", "t.csv", "encoding=latin-1", "--label", "y", "--force"]) == 0
    assert "encoding: latin-1" in Path("t.yaml").read_text()


def test_labels_with_leading_zeros_keep_their_words() -> None:
    draft(csv(people(y="'00%d' % (row % 3)")), "y")
    _, plan = planned("t.yaml")
    assert plan.model.schema is not None
    assert plan.model.schema.classes == ("000", "001", "002")


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ("'w%02d' % (row % 90)", [f"w{number:02}" for number in range(90)]),
        ("row % 2 if row > 2 else 7", [0, 1, 7]),
        ("row < 3", ["false", "true"]),
        ("row % 2", "auto"),
    ],
)
def test_rare_classes_are_listed_for_the_part_to_train_on_may_lack_them(values: str, classes: Any) -> None:
    draft(csv(people(200, y=values)), "y")
    assert max(map(len, Path("t.yaml").read_text().splitlines())) <= 120
    parameters, plan = planned("t.yaml")
    label = parameters.input.train.label  # type: ignore[union-attr]
    assert (label.classes if isinstance(label.classes, str) else list(label.classes)) == classes
    assert sum(dataset.num_records for dataset in plan.datasets.values()) == 200


def test_a_few_missing_labels_are_left_out_with_their_number_and_many_are_refused() -> None:
    draft(csv(people(y="'NA' if row == 5 else 'ab'[row % 2]")), "y")
    assert "# 1 of 30 records have no label ('NA'): left out" in Path("t.yaml").read_text()
    words = (
        r"label 'y' is missing \('NA'\) in 10 of 30 records, expected at most 10%; remove these records .* na_values="
    )
    with pytest.raises(UsageError, match=words):
        draft(csv(people(y="['NA', 'EU', 'AS'][row % 3]")), "y", overwrites=True)
    facts = init("t.csv", "y", ["na_values=[]"], output=None, model=None, format_name=None, overwrites=True).facts
    assert facts["label"]["comment"] == "3 classes: AS (33%), EU (33%), NA (33%)"
    planned("t.yaml")


def test_arrays_with_missing_values_or_infinity_are_left_out() -> None:
    table = pa.table({"x": [row % 7 for row in range(30)], "y": ["a", "b", "b"] * 10})
    for name, odd in (("whole", 0.5), ("blank", None), ("infinite", float("inf"))):
        values = pa.array([odd if row == 4 else row / 7 for row in range(60)], pa.float32())
        table = table.append_column(name, pa.FixedSizeListArray.from_arrays(values, 2))
    parquet.write_table(table, "t.parquet")
    columns = draft("t.parquet", "y")["columns"]
    uses = {name: column["use"] for name, column in columns.items()}
    assert uses == {"x": "feature", "whole": "feature", "blank": "left out", "infinite": "left out"}
    assert columns["blank"]["comment"] == "arrays, float32[2], 1 of 30 missing: left out, as arrays cannot be imputed"
    planned("t.yaml")


def test_a_column_with_infinite_numbers_is_left_out_and_such_a_label_is_refused() -> None:
    facts = draft(csv(people(odd="'inf' if row == 3 else row % 4")), "y")
    assert facts["columns"]["odd"]["comment"] == "1 of 30 infinite: left out, as models cannot learn from infinity"
    planned("t.yaml")
    with pytest.raises(UsageError, match="the label 'odd' is infinite in 1 of 30 records; correct them"):
        draft("t.csv", "odd", overwrites=True)


def test_an_indicator_is_no_column_of_the_files() -> None:
    facts = draft(csv(people(a="row % 3 or ''", a_is_missing="row % 5")), "y")
    assert facts["columns"]["a"]["options"] == {"impute": "median", "normalize": "standard"}
    planned("t.yaml")


def test_what_is_only_known_of_the_first_records_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "MAX_RECORDS", 50)
    path = csv(people(400, late="'u' if row < 60 else 'v'", none="'' if row < 60 else 'v'"))
    columns = draft(path, "y")["columns"]
    assert columns["late"]["comment"] == "always u in the first 50 records: left out"
    assert columns["none"]["comment"] == "only missing values in the first 50 records: left out"
    with pytest.raises(UsageError, match="the label 'late' is always 'u' in the first 50 records: expected at least"):
        draft(path, "late", overwrites=True)


def test_an_output_that_is_a_folder_is_refused() -> None:
    csv(people())
    Path("conf").mkdir()
    with pytest.raises(UsageError, match=r"--output is conf, a folder; name a file, such as conf/t\.yaml"):
        draft("t.csv", "y", output="conf")
